/* ctl.h - shared by `weft ctl` and the launcher. */
#ifndef WEFT_CLI_CTL_H
#define WEFT_CLI_CTL_H

/* In checkpoint.dir and log.dir of a job that runs: "weft-control 1", then lines "chiefs ADDRESS,…"
 * and, for tls, "keys DIR". */
#define CONTROL_FILE "control"

#endif
