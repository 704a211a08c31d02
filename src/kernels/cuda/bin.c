/* bin.c - the device code that nvcc compiled, as bytes. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl wf_cuda_fatbin\n"
        ".hidden wf_cuda_fatbin\n"
        "wf_cuda_fatbin:\n"
        ".incbin \"" WF_CUDA_FATBIN "\"\n"
        ".balign 8\n"
        ".previous\n");

#endif
