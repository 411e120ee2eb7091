#!/bin/sh
cut -d ' ' -f 2 /app/server.log | grep -c '^ERROR$' > /app/answer.txt
