/* style.c - how pages look: one style for light and dark, wide screens and phones. */
#include "train/report/report.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#5b6470;--line:#dde1e6;"
    "--card:#f6f7f9;--train:#2563eb;--val:#d9480f;--good:37,99,235;--bad:217,72,15}"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--soft:#98a2ae;"
    "--line:#30363d;--card:#1c2127;--train:#6ea8fe;--val:#ff9a62;--good:110,168,254;"
    "--bad:255,130,80}}"
    "*{box-sizing:border-box}body{margin:0 "
    "auto;max-width:1180px;padding:1.2rem;background:var(--bg);"
    "color:var(--fg);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    "h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .6rem}"
    "p{margin:.3rem 0}.soft{color:var(--soft)}"
    ".tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem "
    ".9rem;"
    "min-width:7.5rem}.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,370px),1fr));gap:."
    "9rem}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem}"
    "svg{display:block;width:100%;max-width:640px;height:auto;margin:auto}svg text{font:12px "
    "system-ui,sans-serif;fill:var(--fg)}"
    "svg .tick{fill:var(--soft)}svg .title{font-weight:600;font-size:14px}"
    "svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}.curve.train{stroke:var(--train)}"
    ".dot{fill:var(--train);fill-opacity:.45}.bar{fill:var(--train)}.even{stroke:var(--val);"
    "stroke-width:1.5;stroke-dasharray:5 4}"
    ".curve.val{stroke:var(--val)}.mark.train{fill:var(--train)}.mark.val{fill:var(--val)}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.22rem .7rem;text-align:right;border-bottom:1px solid "
    "var(--line);white-space:nowrap}"
    "th:first-child,td:first-child,.facts td{text-align:left}th{font-weight:600}"
    ".matrix td,.matrix th{border:1px solid var(--line);padding:.25rem .45rem;text-align:center;"
    "min-width:2.2rem}.matrix.many{font-size:.72rem}.matrix.many td,.matrix.many th{padding:.1rem "
    ".2rem;"
    "min-width:1.5rem}.matrix th.row{text-align:right}"
    ".mistakes{display:grid;grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:.7rem}"
    ".mistakes figure{margin:0;background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;"
    "padding:.45rem;text-align:center;font-size:.8rem;line-height:1.3}"
    ".mistakes img{width:100%;image-rendering:pixelated;border-radius:4px;background:#888}"
    ".no{color:var(--val);font-weight:600}"
    "pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem;"
    "overflow-x:auto;font:12.5px/1.45 ui-monospace,Menlo,Consolas,monospace}"
    "details{margin:.4rem 0}summary{cursor:pointer;color:var(--soft)}"
    ".run0{--run:#2563eb}.run1{--run:#d9480f}.run2{--run:#2b8a3e}.run3{--run:#9c36b5}.run4{--"
    "run:#e8a200}.run5{--run:#0b7285}.run6{--run:#c2255c}.run7{--run:#5f3dc4}.run8{--run:#66a"
    "80f}.run9{--run:#868e96}.run10{--run:#7f4f24}.run11{--run:#1098ad}"
    "[class*=' run']{stroke:var(--run)}[class*=' run'].mark,.key{fill:var(--run)}"
    ".key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em;"
    "background:var(--run)}td.text{white-space:normal;max-width:22rem;text-align:left}"
    "@media(max-width:600px){body{padding:.7rem}.tile{flex:1 1 40%}th,td{padding:.2rem .4rem}}";

void wf_page_begin(struct wf_buf *b, const char *title)
{
    wf_buf_printf(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
                     "name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>");
    wf_html_text(b, title);
    wf_buf_printf(b, "</title>\n<style>%s</style></head><body>\n<h1>", style);
    wf_html_text(b, title);
    wf_buf_printf(b, "</h1>");
}
