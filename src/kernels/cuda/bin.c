/* bin.c - the device code that nvcc compiled, as bytes; and what generated kernels begin with, as
 * text. */
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

#define TEXT(name, file)                      \
    __asm__(".section .rodata\n"              \
            ".globl " #name "\n"              \
            ".hidden " #name "\n" #name ":\n" \
            ".incbin \"" file "\"\n"          \
            ".byte 0\n"                       \
            ".balign 8\n"                     \
            ".previous\n")
TEXT(wf_cuda_kernel_names, WF_CUDA_FATBIN ".names"); /* of all kernels in it, a line each */
TEXT(wf_cuda_text_rtc, WF_CUDA_SOURCES "/rtc.inl");
TEXT(wf_cuda_text_math, WF_CUDA_SOURCES "/math.inl");
TEXT(wf_cuda_text_ew, WF_CUDA_SOURCES "/ew_fn.inl");

#endif
