/* weft/ops.h - every op by name. One header per family; each is its family's manual. */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include "weft/ops_ew.h"
#include "weft/ops_conv.h"
#include "weft/ops_reduce.h"
#include "weft/ops_nn.h"
#include "weft/ops_random.h"
#include "weft/ops_misc.h"
#include "weft/ops_shape.h"
#include "weft/ops_index.h"
#include "weft/ops_rnn.h"
#include "weft/einsum.h"
#include "weft/scan.h"

#endif
