//! Crash safety: the proxy is killed, its disk fills up or fails, its files are damaged. Black-box tests of the binary,
//! on the file system and over HTTP. They need Linux, and a C compiler for the failing disk. Those of clusters need
//! nats-server.

#[cfg(test)]
mod crash {
    mod agent;
    mod broken_disk;
    mod cluster;
    mod damage;
    mod dialects;
    mod harness;
    mod holders;
    mod last_event;
    mod ledger;
    mod part;
    mod proxy;
    mod rng;
    mod rounds;
    mod second;
    mod shared_state;
    mod shim;
    mod small_disk;
    mod tokens;
    mod upstream;
    mod verify;
    mod workers;
}
