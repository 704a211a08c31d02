/* drivers.c - the drivers that are built in: of devices with memory of their own. Each is in a
 * folder of its own beside this file; one that a build lacks is still listed, and says so. */
#include "base/device.h"
#include "kernels/cuda/driver.h"

const weft_device_driver *const wf_builtin_drivers[] = {&wf_cuda_driver, NULL};
