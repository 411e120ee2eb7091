#!/bin/sh
cd /app
sed -i 's/^workers=.*/workers=4/' queue.conf
mkdir -p spool
chmod +x run.sh
./run.sh
