#!/bin/sh
# Writes the reward: 1 if the file is as asked for, else 0.
reward=0
[ "$(cat /app/hello.txt 2>/dev/null)" = 'Hello, world!' ] && reward=1
echo "$reward" > /logs/verifier/reward.txt
