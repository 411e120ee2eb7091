#!/bin/sh
cd /app
sed -i 's/^port=.*/port=8080/' web.conf
mkdir -p logs
chmod +x start.sh
./start.sh
