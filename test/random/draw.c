/* draw.c - numbers from a seed (splitmix64). */
#include "random/random.h"

uint64_t draw_bits(struct draw *d)
{
    uint64_t z = (d->state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The seed is scrambled, not scaled: otherwise neighboring seeds would draw the same numbers, one
 * draw apart. */
struct draw draw_from(uint64_t seed, uint64_t stream)
{
    struct draw d = {seed};

    d.state = draw_bits(&d) ^ stream;
    d.state = draw_bits(&d);
    return d;
}

int64_t draw_int(struct draw *d, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(draw_bits(d) % (uint64_t)(hi - lo + 1));
}

double draw_real(struct draw *d, double lo, double hi)
{
    return lo + (hi - lo) * (double)(draw_bits(d) >> 11) * 0x1p-53;
}

bool draw_one_in(struct draw *d, int n)
{
    return draw_bits(d) % (uint64_t)n == 0;
}

const char *draw_word(struct draw *d, const char *words, char out[32])
{
    int n = 1;
    int64_t pick;

    for (const char *p = words; *p; p++)
        n += *p == '|';
    pick = draw_int(d, 0, n - 1);
    for (; pick > 0; words++)
        pick -= *words == '|';
    snprintf(out, 32, "%.*s", (int)strcspn(words, "|"), words);
    return out;
}

bool draw_overlaps(void)
{
    enum { N = 64 };

    for (uint64_t seed = 0; seed < 100; seed++)
        for (uint64_t other = seed + 1; other < seed + 4; other++) {
            struct draw a = draw_from(seed, 1), b = draw_from(other, 1);
            uint64_t x[N];

            for (int i = 0; i < N; i++)
                x[i] = draw_bits(&a);
            for (int i = 0; i < N; i++) {
                uint64_t y = draw_bits(&b);

                for (int k = 0; k < N; k++)
                    if (x[k] == y)
                        return true;
            }
        }
    return false;
}
