/* words.c - the words of train.loss, train.metrics, train.optimizer and train.schedule, for help
 * texts: rows of the tables that compiling uses. */
#include <stdio.h>

#include "base/base.h"
#include "op/optim.h"
#include "op/schedule.h"
#include "weft/job.h"

static const struct row {
    const char *name, *shorts, *attrs, *doc, *log;
    int direction;
} losses[] =
    {
#define LOSS(name_, shorts_, attrs_, fn_, labels_, doc_) {#name_, shorts_, attrs_, doc_, NULL, -1},
#include "model/losses.def"
#undef LOSS
},
  metrics[] = {
#define METRIC(name_, log_, shorts_, attrs_, family_, variant_, direction_, doc_) \
    {#name_, shorts_, attrs_, doc_, log_, direction_},
#include "model/metrics.def"
#undef METRIC
};

static const struct doc {
    const char *name, *doc;
} docs[] = {
    {"sgd", "plain gradients, with momentum and Nesterov's where asked for"},
    {"rmsprop", "gradients divided by a moving root of their squares"},
    {"adam", "moving means of gradients and their squares; amsgrad keeps the largest"},
    {"adamw", "adam with weight decay apart from the gradient"},
    {"adamax", "adam with the largest gradient so far in place of the root of squares"},
    {"nadam", "adam with Nesterov's momentum"},
    {"adagrad", "gradients divided by the root of all squares so far: for rare features"},
    {"adadelta", "steps as large as the steps before, without a rate of their own"},
    {"ftrl", "follow the regularized leader: sparse weights by l1"},
    {"lion", "the sign of a moving mean of gradients"},
    {"lamb", "adam with a rate for each variable by its norm: for large batches"},
    {"constant", "one rate"},
    {"exponential_decay", "the rate times decay_rate for every decay_steps steps"},
    {"piecewise_constant", "rates between numbers of steps: boundaries=[…] values=[…]"},
    {"polynomial_decay", "from the rate to end_learning_rate within decay_steps steps"},
    {"inverse_time_decay", "the rate / (1 + decay_rate * steps / decay_steps)"},
    {"cosine_decay", "half a cosine from the rate to alpha times it, after a warmup"},
    {"cosine_decay_restarts",
     "a cosine that starts over, each time t_mul as long and m_mul as high"},
};

static const char *doc_of(const char *name)
{
    for (int i = 0; i < WF_COUNT(docs); i++)
        if (strcmp(docs[i].name, name) == 0)
            return docs[i].doc;
    return "";
}

/* Metrics that are a loss have its arguments and meaning. */
static const struct row *loss_named(const char *name)
{
    for (int i = 0; i < WF_COUNT(losses); i++)
        if (strcmp(losses[i].name, name) == 0 || strstr(name, losses[i].name) == name)
            return &losses[i];
    return NULL;
}

bool weft_loss_at(int i, const char **name, const char **shorts, const char **attrs,
                  const char **doc)
{
    if (i < 0 || i >= WF_COUNT(losses))
        return false;
    *name = losses[i].name;
    *shorts = losses[i].shorts;
    *attrs = losses[i].attrs;
    *doc = losses[i].doc;
    return true;
}

bool weft_metric_at(int i, const char **name, const char **shorts, const char **attrs,
                    const char **doc)
{
    const struct row *loss;

    if (i < 0 || i >= WF_COUNT(metrics))
        return false;
    loss = loss_named(metrics[i].name);
    *name = metrics[i].name;
    *shorts = metrics[i].shorts;
    *attrs = metrics[i].attrs ? metrics[i].attrs : loss ? loss->attrs : "";
    *doc = metrics[i].doc ? metrics[i].doc : loss ? loss->doc : "";
    return true;
}

int weft_log_direction(const char *name)
{
    size_t n = strlen(name), best = 0;
    int direction = 0;

    if (n >= 4 && strcmp(name + n - 4, "loss") == 0)
        return -1;
    if (strncmp(name, "val_", 4) == 0)
        name += 4;
    for (int i = 0; i < WF_COUNT(metrics);
         i++) { /* "auc_1", "precision_0.3": the longest name that begins it */
        size_t len = strlen(metrics[i].log);

        if (len > best && strncmp(name, metrics[i].log, len) == 0 &&
            (!name[len] || name[len] == '_')) {
            best = len;
            direction = metrics[i].direction;
        }
    }
    return direction;
}

bool weft_optimizer_at(int i, const char **name, const char **doc)
{
    if (i < 0 || i >= wf_n_optim_rows)
        return false;
    *name = wf_optim_rows[i].name;
    *doc = doc_of(*name);
    return true;
}

bool weft_optimizer_attr_at(int i, int k, const char **name, double *value)
{
    if (i < 0 || i >= wf_n_optim_rows || k < 0 || k >= wf_optim_rows[i].n_attrs)
        return false;
    *name = wf_optim_rows[i].attrs[k].name;
    *value = wf_optim_rows[i].attrs[k].def;
    return true;
}

bool weft_schedule_at(int i, const char **name, const char **doc)
{
    if (i < 0 || i >= wf_n_schedule_rows)
        return false;
    *name = wf_schedule_rows[i].name;
    *doc = doc_of(*name);
    return true;
}

bool weft_schedule_attr_at(int i, int k, const char **name, double *value)
{
    if (i < 0 || i >= wf_n_schedule_rows || k < 0 || k >= wf_schedule_rows[i].n_attrs)
        return false;
    *name = wf_schedule_rows[i].attrs[k].name;
    *value = wf_schedule_rows[i].attrs[k].def;
    return true;
}
