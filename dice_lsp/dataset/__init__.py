"""CuKe records: verified fills with what they were measured at, to fine-tune a checkpoint on."""
