/* check.h - for helpers of tests, which some programs link without cmocka: a failure ends the
 * program. */
#ifndef WF_TEST_CHECK_H
#define WF_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK_FAIL(...)                                                            \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), \
     fprintf(stderr, "\n"), abort())
#define CHECK(x) ((x) ? (void)0 : CHECK_FAIL("%s: %s", #x, weft_error()))

#endif
