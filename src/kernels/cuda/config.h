/* config.h - whether this build has the GPU's kernels: WF_HAVE_CUDA is set by CMake where nvcc and
 * its headers are installed. */
#ifndef WF_CUDA_CONFIG_H
#define WF_CUDA_CONFIG_H

#ifndef WF_HAVE_CUDA
#define WF_HAVE_CUDA 0
#endif

typedef int wf_cuda_config; /* a file of this folder is never empty */

#endif
