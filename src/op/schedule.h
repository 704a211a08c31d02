/* schedule.h - learning-rate schedules as rows of a table, like the optimizers.
 *
 * A schedule is evaluated at s, the number of completed steps (0 for the first step, as in Keras).
 * Everything is f64 and plain arithmetic, so every machine gets the same bits.
 *
 *   constant                rate
 *   exponential_decay       rate * decay_rate ^ (s / decay_steps)          staircase: whole powers
 *   piecewise_constant      values[i], i the number of boundaries below s
 *                           (s <= boundaries[0]: values[0])
 *   polynomial_decay        (rate - end) (1 - s / decay_steps) ^ power + end, s held at decay_steps
 *                           cycle: decay_steps grows to the next multiple that is not below s
 *   inverse_time_decay      rate / (1 + decay_rate * s / decay_steps)   staircase: whole quotients
 *   cosine_decay            rate * ((1 - alpha) (1 + cos(pi s / decay_steps)) / 2 + alpha), s held
 *                           with warmup_target > 0: first a line from rate to it in warmup_steps,
 *                           then the decay from it
 *   cosine_decay_restarts   the same over periods of first_decay_steps * t_mul^i, rate * m_mul^i */
#ifndef WF_OP_SCHEDULE_H
#define WF_OP_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#define WF_SCHEDULE_MAX_ATTRS 8

struct wf_schedule_row {
    const char *name;
    int n_attrs; /* the first is always the initial learning rate */
    struct {
        const char *name;
        double def;
    } attrs[WF_SCHEDULE_MAX_ATTRS];
    bool takes_list; /* n boundaries followed by n + 1 values */
    double (*rate)(const double *attrs, const double *list, int64_t n_list, double done);
};

extern const struct wf_schedule_row wf_schedule_rows[];
extern const int wf_n_schedule_rows;

const struct wf_schedule_row *wf_schedule_find(const char *name); /* NULL if there is none */
int wf_schedule_attr_find(const struct wf_schedule_row *row, const char *name); /* -1: none */
void wf_schedule_defaults(const struct wf_schedule_row *row, double *attrs);
/* What is wrong with these attributes, e.g. "decay_steps must be positive"; NULL: nothing. */
const char *wf_schedule_check(const struct wf_schedule_row *row, const double *attrs,
                              const double *list, int64_t n_list);
/* The learning rate after `done` steps. */
double wf_schedule_rate(const struct wf_schedule_row *row, const double *attrs, const double *list,
                        int64_t n_list, int64_t done);

#endif
