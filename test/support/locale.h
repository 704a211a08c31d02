/* locale.h - locales that test/support/locales.sh made, for tests of what must not depend on
 * them. */
#ifndef SUPPORT_LOCALE_H
#define SUPPORT_LOCALE_H

/* setlocale(LC_ALL, name). NULL when that worked; the reason why this machine cannot make locales;
 * any other failure ends the program. */
const char *locale_missing(const char *name);

#endif
