//! The priority of the store's threads.

/// Lowers the priority of the calling thread, so that encoding records and waiting for a disk do not delay tokens where
/// streams keep every core busy. The thread then gets about a tenth of a core.
#[cfg(target_os = "linux")]
pub(crate) fn lower_priority() {
    /// The difference of the nice value.
    const NICER: i32 = 10;

    // On Linux, the priority of "this process" is that of the calling thread alone (setpriority(2)).
    let lowered = rustix::process::getpriority_process(None)
        .and_then(|nice| rustix::process::setpriority_process(None, nice.saturating_add(NICER).min(19)));
    if let Err(error) = lowered {
        tracing::debug!(%error, "the priority of a thread of the store stays as it is");
    }
}

/// Does nothing: elsewhere, a priority belongs to the whole process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lower_priority() {}
