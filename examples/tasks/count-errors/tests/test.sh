#!/bin/sh
# Writes two rewards: whether there is an answer at all, and whether it is right. `reward` is the one to train on.
answered=0
reward=0
[ -s /app/answer.txt ] && answered=1
[ "$(cat /app/answer.txt 2>/dev/null)" = 3 ] && reward=1
echo "{\"reward\": $reward, \"answered\": $answered}" > /logs/verifier/reward.json
