//! Crash safety: the proxy is killed, its disk fills up or fails, its files are damaged. Black-box tests of the binary,
//! on the file system and over HTTP. They need Linux, and a C compiler for the failing disk.

#[cfg(test)]
mod crash {
    mod agent;
    mod broken_disk;
    mod chance;
    mod damage;
    mod ledger;
    mod proxy;
    mod rounds;
    mod second;
    mod shim;
    mod small_disk;
    mod speech;
    mod stage;
    mod tokens;
    mod upstream;
    mod verify;
    mod world;
}
