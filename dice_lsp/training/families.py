"""The families of kernels that are known twice, plain and fast. `make_pair(seed)` draws one.

Families of the classes that `tasks.EXCLUDED_CLASSES` keeps for judging are marked `held_out`: training draws from the
others only, so a figure on the held-out ones says how far a checkpoint goes beyond what it was shown.
"""

import random
from collections.abc import Callable

from dice_lsp.training import families_folds as folds
from dice_lsp.training import families_held_out as kept
from dice_lsp.training import families_maps as maps
from dice_lsp.training.maker import Maker
from dice_lsp.training.pair import HELD_OUT_SEED, Family, Pair, Sketch, compose

_TRAINED: dict[str, Callable[[Maker], Sketch]] = {
    "map": maps.pointwise_map, "axpy": maps.axpy, "activation": maps.activation, "channel affine": maps.channel_affine,
    "matrix blend": maps.matrix_blend, "row scale": maps.row_scale, "stencil 1d": maps.stencil_1d,
    "stencil 2d": maps.stencil_2d, "stencil 3d": maps.stencil_3d, "convolution 2d": maps.convolve_2d,
    "transpose": maps.transpose, "permute 3d": maps.permute_3d, "record fields": maps.record_fields,
    "bit mix": maps.bit_mix, "iterated map": maps.polynomial_steps, "row sum": folds.row_sum, "row mean": folds.row_mean,
    "row extreme": folds.row_extreme, "row formula": folds.row_formula, "row count": folds.row_count,
    "batched row sum": folds.batched_row_sum, "column fold": folds.column_sum, "full sum": folds.full_sum,
    "dot": folds.dot, "full extreme": folds.full_extreme, "count if": folds.count_if, "block sums": folds.block_sums,
    "histogram": folds.histogram, "sum by key": folds.sum_by_key, "segmented sum": folds.segmented_sum,
    "softmax": folds.softmax, "row share": folds.row_share, "row to unit": folds.row_to_unit,
    "row centre": folds.row_centre, "running extreme": folds.running_max, "gemm": folds.gemm,
    "gemm transposed": folds.gemm_transposed, "gemm batched": folds.gemm_batched,
}  # fmt: skip
_HELD_OUT: dict[str, Callable[[Maker], Sketch]] = {
    "matrix vector": kept.matrix_vector, "row norm": kept.row_norm, "row argmax": kept.row_argmax,
    "row variance": kept.row_variance, "layer norm": kept.layer_norm, "log softmax": kept.log_sum_exp,
    "prefix sum": kept.prefix_sum, "gather rows": kept.gather_rows, "scatter": kept.scatter_permuted,
    "convolution 1d": kept.convolve_1d, "laplacian": kept.laplacian, "max pool": kept.max_pool,
    "softplus": kept.softplus, "reverse": kept.reverse, "outer product": kept.outer_product,
    "sparse rows": kept.sparse_rows,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    **{name: Family(name, sketch) for name, sketch in _TRAINED.items()},
    **{name: Family(name, sketch, held_out=True) for name, sketch in _HELD_OUT.items()},
}


def family_names(held_out: bool = False) -> tuple[str, ...]:
    """The families that may be trained on, or those that are kept for judging."""
    return tuple(name for name, family in FAMILIES.items() if family.held_out == held_out)


def make_pair(seed: int, held_out: bool = False, family: str | None = None) -> Pair:
    """The pair of a seed: the same for ever in one version of the families. Seeds from `HELD_OUT_SEED` on judge.

    Without `family` the seed chooses one, of those for training unless `held_out` says otherwise.
    """
    name = family or random.Random(seed).choice(family_names(held_out))
    return compose(FAMILIES[name], seed)


__all__ = ["FAMILIES", "HELD_OUT_SEED", "Family", "Pair", "family_names", "make_pair"]
