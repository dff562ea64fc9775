// Everything is in emulation.h, which stands before every text.
