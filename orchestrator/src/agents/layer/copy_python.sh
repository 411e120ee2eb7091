# Copies a Python: interpreter $1 and standard library $2 into $3, of version $4, with patchelf $5.
mkdir -p "$3/bin" "$3/lib"
cp "$1" "$3/bin/python$4"
ln -s "python$4" "$3/bin/python3"
ln -s "python$4" "$3/bin/python"
# Left out: tests, windows, static libraries, packages of the host, what says that the host manages them, and compiled files,
# whose times no longer match.
tar -C "$2" --exclude=./test --exclude='*/tests' --exclude=./idlelib --exclude=./tkinter --exclude=./turtledemo \
  --exclude='./config-*' --exclude=./site-packages --exclude=./dist-packages --exclude=./EXTERNALLY-MANAGED \
  --exclude=__pycache__ --exclude='_tkinter.*' --exclude='_test*.so' -cf - . |
  { mkdir "$3/lib/python$4"; tar -C "$3/lib/python$4" -xf -; }
mkdir -p "$3/lib/python$4/site-packages"
# Shared libraries besides those of the C library, which are the image's own.
ldd "$3/bin/python$4" "$3/lib/python$4"/lib-dynload/*.so | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | ld-linux* | libpthread.so.* | libdl.so.* | librt.so.* | libutil.so.* | libresolv.so.* | \
        libnss_* | libanl.so.* | libmvec.so.*) ;;
      *) cp -L "$library" "$3/lib/" ;;
    esac
  done
# Of the older kind, which holds for the libraries' own libraries too. No variable is needed then, which what the agent runs
# would inherit.
"$5" --force-rpath --set-rpath "\$ORIGIN/../lib" "$3/bin/python$4"
"$3/bin/python$4" -I -c 'import ctypes, hashlib, sqlite3, ssl, sys, zlib; assert sys.prefix == sys.argv[1], sys.prefix' "$3"
# The layer is never written again: compiled files need not be compared with their sources.
"$3/bin/python$4" -m compileall -q --invalidation-mode unchecked-hash "$3/lib/python$4" || true
