/* What OpenCL C and CUDA C call differently, so that models.c is one text for both. */
#ifdef __OPENCL_VERSION__
#define KERNEL __kernel void
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define CONSTANT __constant
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define ITEM ((uint)get_local_id(0))         /* of this item in its group */
#define ITEMS ((uint)get_local_size(0))      /* in a group */
#define GROUP ((uint)get_group_id(0))
#define GROUPS ((uint)get_num_groups(0))
#define LAYER ((uint)get_group_id(1))        /* the second axis of a launch: one packet each */
#define BITS_BELOW(word) (31 - clz((word) & (0 - (word)))) /* the place of the lowest bit that is set */
/* Rows in constant memory: OpenCL passes them, CUDA has them under a name of the module. */
#define CONSTANT_ROWS(name)
#define CONSTANT_ARGUMENT(name) CONSTANT const uint *name,
#else
typedef unsigned int uint;
typedef unsigned long long ulong;
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ inline
#define GLOBAL
#define LOCAL __shared__
#define CONSTANT
#define BARRIER() __syncthreads()
#define ITEM (threadIdx.x)
#define ITEMS (blockDim.x)
#define GROUP (blockIdx.x)
#define GROUPS (gridDim.x)
#define LAYER (blockIdx.y)
#define BITS_BELOW(word) (__ffs((int)(word)) - 1)
#define CONSTANT_ROWS(name) extern "C" { __constant__ uint name[16384]; }
#define CONSTANT_ARGUMENT(name)
#endif
