#!/usr/bin/env bash
# weft data: files of every format looked into, converted there and back, summed up; typos, damage, missing files.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

cat >a.csv <<'CSV'
name,age,height
"Smith, J.",31,1.5
Müller,42,1.75
"a ""quoted"" one",7,2.25
CSV

# look
want 0 "csv, 3 records" "$WEFT" data inspect a.csv
want 0 "height  f32    []" "$WEFT" data inspect a.csv
want 0 'name="Smith, J." age=31 height=1.5' "$WEFT" data inspect a.csv
want 0 '"count": 3' "$WEFT" data inspect a.csv --json
"$WEFT" data inspect a.csv --json >a.json
if command -v python3 >/dev/null; then
    want 0 "3 age" python3 -c 'import json; d = json.load(open("a.json")); print(d["count"], d["columns"][1]["name"])'
fi
want 0 "records not counted" "$WEFT" data inspect a.csv --no-count
want 0 "age" "$WEFT" data inspect a.csv --columns age --records 1

# there and back
want 0 "3 records" "$WEFT" data convert a.csv a.tfrecord
want 0 "tfrecord, 3 records" "$WEFT" data inspect a.tfrecord
want 0 "3 records" "$WEFT" data convert a.tfrecord b.csv --columns name,age,height
same a.csv b.csv
want 0 "3 records" "$WEFT" data convert a.csv a.tfrecord.gz
want 0 "3 records" "$WEFT" data convert a.tfrecord.gz c.csv --columns name,age,height
same a.csv c.csv
want 0 "3 records" "$WEFT" data convert a.csv h.npy --columns height
want 0 "height" "$WEFT" data inspect a.tfrecord --columns height
want 0 "npy, 3 records, random access" "$WEFT" data inspect h.npy
want 0 "3 records" "$WEFT" data convert a.csv n.npz --columns age,height
want 0 "age=42 height=1.75" "$WEFT" data inspect n.npz
gzip -k a.csv
want 0 "csv, 3 records" "$WEFT" data inspect a.csv.gz
printf '1 1:0.5 3:2\n-1 2:1\n' >a.svm
want 0 "libsvm, 2 records" "$WEFT" data inspect a.svm
printf 'first line\nsecond\n' >a.txt
want 0 "lines, 2 records" "$WEFT" data inspect a.txt
if command -v sqlite3 >/dev/null; then
    sqlite3 a.db 'CREATE TABLE people(id INTEGER, size REAL); INSERT INTO people VALUES (1, 0.5), (2, 0.25);'
    want 0 "sqlite, 2 records" "$WEFT" data inspect a.db
    want 0 "2 records" "$WEFT" data convert a.db d.csv
    want 0 "2,0.25" cat d.csv
fi

# sum up
want 0 "26.6667" "$WEFT" data stats a.csv --columns age
want 0 "age" "$WEFT" data stats a.csv --columns age --out s.json
want 0 "age" cat s.json

# mistakes
want 3 "no file matches" "$WEFT" data inspect missing.csv
want 2 "no format 'cvs'" "$WEFT" data inspect a.csv --format cvs
want 2 "did you mean --columns" "$WEFT" data inspect a.csv --colums age
want 3 "no column 'agee', did you mean 'age'" "$WEFT" data inspect a.csv --columns agee
want 2 "does not end in a known format; see `weft data convert --help`" "$WEFT" data convert a.csv a.xls
want 2 "is text" "$WEFT" data convert a.csv name.npy --columns name
want 2 "needs an input and an output file" "$WEFT" data convert a.csv
head -c 100 a.tfrecord >cut.tfrecord
want 3 "cut.tfrecord: record" "$WEFT" data inspect cut.tfrecord
printf 'a,b\n1,2\n3\n4,5\n' >ragged.csv
want 3 "ragged.csv: record 1" "$WEFT" data inspect ragged.csv
want 0 "csv, 2 records, 1 skipped" "$WEFT" data inspect ragged.csv --skip-bad
: >empty.csv
want 3 "is empty" "$WEFT" data inspect empty.csv
want 3 "cannot open its directory" "$WEFT" data convert a.csv no/such/folder/a.csv

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))
