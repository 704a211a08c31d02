/* kernels.cu - all device code of weft, one translation unit. */
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/dev/all.inl"
