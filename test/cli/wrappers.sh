#!/usr/bin/env bash
# Layers in layers: Bidirectional, TimeDistributed and RNN in a job, trained, saved, resumed and used.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { print "a,b,y"; for (i = 0; i < 240; i++) printf "%.4f,%.4f,%.4f\n", sin(i / 5), cos(i / 7), sin((i + 1) / 5) }' >series.csv
cat >job.yaml <<'YAML'
data:
  train: {path: series.csv, label: y}
  pipeline:
    - join: {columns: [a, b], to: x}
    - window: {size: 6, shift: 1}
  batch: 16
model:
  - Bidirectional: {layer: {LSTM: {units: 8, return_sequences: true}}, merge_mode: sum}
  - TimeDistributed:
      layer: {Dense: {units: 1}}
train: {optimizer: adam learning_rate=0.02, loss: mse, epochs: 4}
checkpoint: {dir: ckpt}
save: model.safetensors
YAML
want 0 "704" "$WEFT" summary job.yaml # 2 * 4 * 8 * (2 + 8 + 1)
want 0 "713 (2.79 KB)" "$WEFT" summary job.yaml
"$WEFT" train job.yaml --log lines >out.txt 2>&1 || { echo "FAILED: train"; cat out.txt; bad=$((bad + 1)); }
check "it learns" awk '/loss: / { sub(/.*loss: /, ""); if (!first) first = $1; last = $1 } END { exit !(first && last < first / 2) }' out.txt
want 0 "loss" "$WEFT" eval model.safetensors series.csv
want 0 "" "$WEFT" predict model.safetensors series.csv --out out.csv

# two epochs, then two more: the same weights
"$WEFT" train job.yaml --log none --set checkpoint.dir=other --set save=other.safetensors --set train.epochs=2
"$WEFT" train job.yaml --log none --set checkpoint.dir=other --set save=other.safetensors
check "the same weights after a pause" cmp model.safetensors other.safetensors

# as the layers by themselves: a TimeDistributed Dense is a Dense
"$WEFT" train job.yaml --log lines --fresh --set model.1='{Dense: {units: 1}}' 2>/dev/null | grep -o 'loss: .*' >dense.txt
grep -o 'loss: .*' out.txt >wrapped.txt
check "a TimeDistributed Dense is a Dense" cmp dense.txt wrapped.txt

# a cell; a value in the inner layer changed; a wrapper in a wrapper
short="--log lines --set checkpoint.dir= --set save= --set train.epochs=1"
for layer in '{RNN: {cell: {GRUCell: {units: 3}}, return_sequences: true}}' '{RNN: {layer: {LSTMCell: {units: 3}}, return_sequences: true}}' \
    '{Bidirectional: {layer: {RNN: {cell: {GRUCell: {units: 3}}, return_sequences: true}}}}' '{Bidirectional: {layer: GRU, units: 3}}'; do
    case $layer in
    *GRU,*) want 3 "GRU: attribute 'units' must be given" "$WEFT" train job.yaml $short --set model.0="$layer" ;;
    *) want 0 "loss" "$WEFT" train job.yaml $short --set model.0="$layer" ;;
    esac
done
want 0 "Trainable params: 1,4" "$WEFT" summary job.yaml --set model.0.Bidirectional.layer.LSTM.units=12

# mistakes, with their places
want 3 "Bidirectional: wraps another layer: give it as an argument, \`layer: {LSTM: {units: 8}}\`" "$WEFT" train job.yaml $short --set 'model.0={Bidirectional: {merge_mode: sum}}'
want 3 "Dense: cannot wrap another layer" "$WEFT" train job.yaml $short --set 'model.1={Dense: {units: 1, layer: {Dense: {units: 1}}}}'
sed -i 's/units: 8, return/unitz: 8, return/' job.yaml
want 3 "job.yaml:8:28: LSTM: has no attribute 'unitz'" "$WEFT" train job.yaml $short

want 0 "layer                        layer    (required)" "$WEFT" keys Bidirectional
want 0 "layer                        layer    (required)" "$WEFT" keys TimeDistributed

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))
