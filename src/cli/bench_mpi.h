/* bench_mpi.h - the figures of weft bench net for Open MPI, where it is installed. */
#ifndef WEFT_CLI_BENCH_MPI_H
#define WEFT_CLI_BENCH_MPI_H

#include <stdbool.h>
#include <stdint.h>

#include "procs.h"

struct mpi_figures {
    char version[64];
    double one_way_s; /* a message of `bytes` to the other process, and its answer */
    double round_trip_s;
};

/* Whether transports other than shm and tcp are to be compared: no. */
bool mpi_has(const char *transport);
/* Runs two ranks under mpirun. False: why says what is missing. */
bool mpi_measure(struct procs *p, const char *transport, int64_t bytes, int blocks,
                 struct mpi_figures *out, char why[256]);
/* One of the two ranks. how: "TRANSPORT,BYTES,BLOCKS,FILE"; rank 0 writes its figures to FILE. */
int mpi_rank(const char *how);

#endif
