#include "sim.h"
const struct sim_kind sim_real = {0};
