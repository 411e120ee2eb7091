//! Leases and logs on real NATS servers.

#[cfg(test)]
mod nats {
    mod harness;
    mod lease;
    mod log;
    mod refused;
}
