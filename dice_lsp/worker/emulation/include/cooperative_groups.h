// Cooperative groups of one block. A grid can be asked for its size, but not synchronised.
#ifndef DICE_EMU_COOPERATIVE_GROUPS_H
#define DICE_EMU_COOPERATIVE_GROUPS_H

namespace cooperative_groups {

namespace emulated {
DICE_EMU_INLINE unsigned rank_in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
DICE_EMU_INLINE unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
DICE_EMU_INLINE unsigned lanes_below(unsigned mask) { return mask & ((1u << (rank_in_block() & 31)) - 1); }
// The lane that holds the rank-th set bit of a mask.
DICE_EMU_INLINE unsigned lane_of(unsigned mask, unsigned rank) {
    for (; rank > 0 && mask; --rank) mask &= mask - 1;
    return mask ? static_cast<unsigned>(__builtin_ctz(mask)) : 32u;
}
template <class T>
DICE_EMU_INLINE T from_lane(unsigned mask, const T& v, unsigned lane, int line) {
    if constexpr (sizeof(T) <= 8) {
        return dice_emu::shuffle(dice_emu_shfl_idx, mask, v, static_cast<int>(lane), 32, line);
    } else {
        T r;
        for (size_t i = 0; i < sizeof(T); i += 8) {
            size_t n = sizeof(T) - i < 8 ? sizeof(T) - i : 8;
            unsigned long long piece = 0;
            memcpy(&piece, reinterpret_cast<const char*>(&v) + i, n);
            piece = dice_emu::shuffle(dice_emu_shfl_idx, mask, piece, static_cast<int>(lane), 32, line);
            memcpy(reinterpret_cast<char*>(&r) + i, &piece, n);
        }
        return r;
    }
}
}  // namespace emulated

class thread_block {
  public:
    DICE_EMU_INLINE void sync(DICE_EMU_LINE) const { dice_emu_barrier(dice_emu_line, 0, 0); }
    DICE_EMU_INLINE static unsigned thread_rank() { return emulated::rank_in_block(); }
    DICE_EMU_INLINE static unsigned size() { return emulated::block_size(); }
    DICE_EMU_INLINE static unsigned num_threads() { return emulated::block_size(); }
    DICE_EMU_INLINE static dim3 thread_index() { return dim3(threadIdx); }
    DICE_EMU_INLINE static dim3 group_index() { return dim3(blockIdx); }
    DICE_EMU_INLINE static dim3 group_dim() { return blockDim; }
    DICE_EMU_INLINE static dim3 dim_threads() { return blockDim; }
};
DICE_EMU_INLINE thread_block this_thread_block() { return {}; }

class grid_group {
  public:
    DICE_EMU_INLINE void sync(DICE_EMU_LINE) const { dice_emu_stop("unsupported", "grid-wide synchronisation is", dice_emu_line); }
    DICE_EMU_INLINE bool is_valid() const { return true; }
    DICE_EMU_INLINE unsigned long long thread_rank() const { return block_rank() * emulated::block_size() + emulated::rank_in_block(); }
    DICE_EMU_INLINE unsigned long long block_rank() const {
        return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
    }
    DICE_EMU_INLINE unsigned long long num_blocks() const { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
    DICE_EMU_INLINE unsigned long long size() const { return num_blocks() * emulated::block_size(); }
    DICE_EMU_INLINE unsigned long long num_threads() const { return size(); }
    DICE_EMU_INLINE dim3 group_dim() const { return gridDim; }
    DICE_EMU_INLINE dim3 dim_blocks() const { return gridDim; }
    DICE_EMU_INLINE dim3 block_index() const { return dim3(blockIdx); }
};
DICE_EMU_INLINE grid_group this_grid() { return {}; }

// A set of lanes of one warp: what tiles and coalesced groups have in common.
class lanes {
  protected:
    unsigned mask_;
    DICE_EMU_INLINE explicit lanes(unsigned mask) : mask_(mask) {}
    template <class T>
    DICE_EMU_INLINE T shift(const T& v, long rank, int line) const {
        bool inside = rank >= 0 && rank < static_cast<long>(num_threads());
        unsigned lane = inside ? emulated::lane_of(mask_, static_cast<unsigned>(rank)) : emulated::rank_in_block() & 31;
        return emulated::from_lane(mask_, v, lane, line);
    }
    DICE_EMU_INLINE unsigned packed(unsigned lanes_mask) const {
        unsigned r = 0, i = 0;
        for (unsigned m = mask_; m; m &= m - 1, ++i) r |= (lanes_mask >> __builtin_ctz(m) & 1) << i;
        return r;
    }

  public:
    DICE_EMU_INLINE unsigned num_threads() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
    DICE_EMU_INLINE unsigned size() const { return num_threads(); }
    DICE_EMU_INLINE unsigned thread_rank() const { return static_cast<unsigned>(__builtin_popcount(emulated::lanes_below(mask_))); }
    DICE_EMU_INLINE void sync(DICE_EMU_LINE) const { __syncwarp(mask_, dice_emu_line); }
    template <class T>
    DICE_EMU_INLINE T shfl(T v, int rank, DICE_EMU_LINE) const {
        return emulated::from_lane(mask_, v, emulated::lane_of(mask_, static_cast<unsigned>(rank) % num_threads()), dice_emu_line);
    }
    template <class T>
    DICE_EMU_INLINE T shfl_down(T v, unsigned delta, DICE_EMU_LINE) const {
        return shift(v, static_cast<long>(thread_rank()) + delta, dice_emu_line);
    }
    template <class T>
    DICE_EMU_INLINE T shfl_up(T v, unsigned delta, DICE_EMU_LINE) const {
        return shift(v, static_cast<long>(thread_rank()) - static_cast<long>(delta), dice_emu_line);
    }
    DICE_EMU_INLINE int any(int p, DICE_EMU_LINE) const { return __any_sync(mask_, p, dice_emu_line); }
    DICE_EMU_INLINE int all(int p, DICE_EMU_LINE) const { return __all_sync(mask_, p, dice_emu_line); }
    DICE_EMU_INLINE unsigned ballot(int p, DICE_EMU_LINE) const { return packed(__ballot_sync(mask_, p, dice_emu_line)); }
    template <class T>
    DICE_EMU_INLINE unsigned match_any(T v, DICE_EMU_LINE) const {
        return packed(__match_any_sync(mask_, v, dice_emu_line));
    }
    template <class T>
    DICE_EMU_INLINE unsigned match_all(T v, int& all, DICE_EMU_LINE) const {
        return packed(__match_all_sync(mask_, v, &all, dice_emu_line));
    }
};

class coalesced_group : public lanes {

  public:
    DICE_EMU_INLINE explicit coalesced_group(unsigned mask) : lanes(mask) {}
    DICE_EMU_INLINE unsigned meta_group_rank() const { return 0; }
    DICE_EMU_INLINE unsigned meta_group_size() const { return 1; }
};
DICE_EMU_INLINE coalesced_group coalesced_threads(DICE_EMU_LINE) { return coalesced_group(__activemask(dice_emu_line)); }

template <unsigned N, class Parent = thread_block>
class thread_block_tile : public lanes {
    static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "tiles of more than 32 threads are not supported on the host");
    DICE_EMU_INLINE static unsigned own_mask() {
        unsigned first = emulated::rank_in_block() & 31 & ~(N - 1);
        return (N == 32 ? ~0u : (1u << (N & 31)) - 1) << first;
    }

  public:
    DICE_EMU_INLINE thread_block_tile() : lanes(own_mask()) {}
    DICE_EMU_INLINE static constexpr unsigned num_threads() { return N; }
    DICE_EMU_INLINE static constexpr unsigned size() { return N; }
    DICE_EMU_INLINE static unsigned thread_rank() { return emulated::rank_in_block() & (N - 1); }
    DICE_EMU_INLINE static unsigned meta_group_rank() { return emulated::rank_in_block() / N; }
    DICE_EMU_INLINE static unsigned meta_group_size() { return (emulated::block_size() + N - 1) / N; }
    template <class T>
    DICE_EMU_INLINE T shfl_xor(T v, unsigned bits, DICE_EMU_LINE) const {
        return this->shift(v, static_cast<long>(thread_rank() ^ bits), dice_emu_line);
    }
    DICE_EMU_INLINE operator coalesced_group() const { return coalesced_group(this->mask_); }
};

template <unsigned N, class Parent>
DICE_EMU_INLINE thread_block_tile<N, Parent> tiled_partition(const Parent&) {
    return {};
}
DICE_EMU_INLINE coalesced_group tiled_partition(const thread_block&, unsigned n) {
    unsigned first = emulated::rank_in_block() & 31 & ~(n - 1);
    return coalesced_group((n >= 32 ? ~0u : (1u << n) - 1) << first);
}
template <class Group, class T>
DICE_EMU_INLINE coalesced_group labeled_partition(const Group&, T label, DICE_EMU_LINE) {
    unsigned active = __activemask(dice_emu_line);
    return coalesced_group(__match_any_sync(active, label, dice_emu_line));
}
template <class Group>
DICE_EMU_INLINE coalesced_group binary_partition(const Group& g, bool p, DICE_EMU_LINE) {
    return labeled_partition(g, p, dice_emu_line);
}

template <class Group>
DICE_EMU_INLINE void sync(const Group& g, DICE_EMU_LINE) {
    g.sync(dice_emu_line);
}
template <class Group>
DICE_EMU_INLINE unsigned thread_rank(const Group& g) {
    return static_cast<unsigned>(g.thread_rank());
}
template <class Group>
DICE_EMU_INLINE unsigned group_size(const Group& g) {
    return static_cast<unsigned>(g.size());
}

template <class T = void>
struct plus {
    DICE_EMU_INLINE T operator()(T a, T b) const { return a + b; }
};
template <class T = void>
struct less {
    DICE_EMU_INLINE T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T = void>
struct greater {
    DICE_EMU_INLINE T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T = void>
struct bit_and {
    DICE_EMU_INLINE T operator()(T a, T b) const { return a & b; }
};
template <class T = void>
struct bit_or {
    DICE_EMU_INLINE T operator()(T a, T b) const { return a | b; }
};
template <class T = void>
struct bit_xor {
    DICE_EMU_INLINE T operator()(T a, T b) const { return a ^ b; }
};

// Every thread of the group gets the result. Powers of two combine as a butterfly does, so that the rounding of a sum
// is that of the usual tree.
template <class Group, class T, class Op>
DICE_EMU_INLINE T reduce(const Group& g, T v, Op op, DICE_EMU_LINE) {
    unsigned n = g.num_threads(), rank = g.thread_rank();
    if ((n & (n - 1)) == 0) {
        for (unsigned d = n / 2; d > 0; d /= 2) v = op(v, g.shfl(v, static_cast<int>(rank ^ d), dice_emu_line));
        return v;
    }
    T total = g.shfl(v, 0, dice_emu_line);
    for (unsigned i = 1; i < n; ++i) total = op(total, g.shfl(v, static_cast<int>(i), dice_emu_line));
    return total;
}
template <class Group, class T, class Op>
DICE_EMU_INLINE T inclusive_scan(const Group& g, T v, Op op, DICE_EMU_LINE) {
    for (unsigned d = 1; d < g.num_threads(); d *= 2) {
        T other = g.shfl_up(v, d, dice_emu_line);
        if (g.thread_rank() >= d) v = op(other, v);
    }
    return v;
}
template <class Group, class T>
DICE_EMU_INLINE T inclusive_scan(const Group& g, T v, DICE_EMU_LINE) {
    return inclusive_scan(g, v, plus<T>(), dice_emu_line);
}
template <class Group, class T, class Op>
DICE_EMU_INLINE T exclusive_scan(const Group& g, T v, Op op, DICE_EMU_LINE) {
    T below = g.shfl_up(inclusive_scan(g, v, op, dice_emu_line), 1, dice_emu_line);
    return g.thread_rank() == 0 ? T() : below;
}
template <class Group, class T>
DICE_EMU_INLINE T exclusive_scan(const Group& g, T v, DICE_EMU_LINE) {
    return exclusive_scan(g, v, plus<T>(), dice_emu_line);
}

}  // namespace cooperative_groups

#endif
