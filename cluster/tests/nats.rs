//! Leases, logs and the queue of trials on real NATS servers.

#[cfg(test)]
mod nats {
    mod harness;
    mod lease;
    mod log;
    mod permissions;
    mod refused;
    mod versions;
    mod work;
}
