/* weft/weft.h - everything.
 *
 *   base.h    status codes, error text, the context
 *   tensor.h  dtypes and views of memory
 *   graph.h   graphs, variables, gradients, files
 *   ops.h     the ops by name
 *   autocast.h mixed precision
 *   optim.h   optimizers and schedules
 *   fn.h      functions: planning and running
 *   model.h   layers and models
 *   check.h   gradient check
 *   job.h     jobs in YAML files
 *   train.h   compile, fit, evaluate, predict, callbacks
 *   loop.h    custom training loops
 *   dist.h    strategies: who computes what
 *   params.h  parameter calls: push and pull for loops of your own
 *   program.h a program of your own as the tasks of a job
 *   session.h custom training loops, step by step, with hooks
 *   cluster.h the tasks of a job
 *   ckpt.h    safetensors files and checkpoints
 *   data.h    datasets: pipelines that feed a trainer
 *   data_array.h, data_image.h arrays and images in files
 *   data_feature.h columns prepared for a model
 *   data_record.h, data_table.h records, tables, databases
 *   data_open.h files of a format to be found out
 *   data_learned.h vocabularies and statistics that are saved with a model
 *   data_stage.h stages by name, with their arguments as text
 *   data_split.h sharing samples out over workers
 *   data_graph.h graph functions and models as stages
 *   sys/      for adding layers, losses, metrics and ops, and for measuring machines */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/autocast.h"
#include "weft/base.h"
#include "weft/check.h"
#include "weft/ckpt.h"
#include "weft/cluster.h"
#include "weft/data.h"
#include "weft/data_array.h"
#include "weft/data_feature.h"
#include "weft/data_graph.h"
#include "weft/data_image.h"
#include "weft/data_learned.h"
#include "weft/data_open.h"
#include "weft/data_record.h"
#include "weft/data_split.h"
#include "weft/data_stage.h"
#include "weft/data_table.h"
#include "weft/dist.h"
#include "weft/fn.h"
#include "weft/graph.h"
#include "weft/job.h"
#include "weft/loop.h"
#include "weft/model.h"
#include "weft/ops.h"
#include "weft/optim.h"
#include "weft/params.h"
#include "weft/program.h"
#include "weft/session.h"
#include "weft/tensor.h"
#include "weft/train.h"

#endif
