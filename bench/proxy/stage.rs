//! The processes of a measurement: the reference and the proxy on the first cores, and upstream beside the load.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use crate::nginx::{self, TlsFiles};
use crate::process::Process;

/// The processes of a measurement. All stop on drop.
pub(crate) struct Stage {
    /// The pass-through, or nginx.
    pub(crate) passing: Process,
    pub(crate) proxy: Process,
    _upstream: Process,
    _files: TempDir,
}

/// Which cores run what.
pub(crate) struct Cores {
    pub(crate) measured: Vec<usize>,
    pub(crate) load: Vec<usize>,
}

impl Cores {
    /// Gives each worker of the measured process a core of its own. Load and upstream get one of the remaining cores, or
    /// all cores if none remains. A single core more lets the load be as late on a large machine as on a small one.
    pub(crate) fn of_workers(workers: usize) -> Self {
        // The number is that before the first confinement.
        static ALL: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
        let all = *ALL;
        assert!(
            workers <= all && all >= 2,
            "{workers} workers need that many cores, and at least 2; there are {all}"
        );
        let load = if workers < all { vec![workers] } else { (0..all).collect() };
        Self { measured: (0..workers).collect(), load }
    }

    /// Confines the current process to the cores of the load.
    pub(crate) fn confine_load(&self) {
        let mut set = CpuSet::new();
        self.load.iter().for_each(|&core| set.set(core));
        sched_setaffinity(None, &set).unwrap();
    }
}

impl Stage {
    /// Confines this process to the load's cores and starts the others.
    pub(crate) fn set(workers: usize) -> Self {
        let cores = Cores::of_workers(workers);
        cores.confine_load();
        let upstream = Process::start_on(&cores.load, &["upstream"]);
        let (address, count) = (upstream.address.to_string(), workers.to_string());
        let url = format!("http://{address}");
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().to_str().unwrap();
        Self {
            passing: Process::start_on(&cores.measured, &["pass-through", &address, &count]),
            proxy: Process::start_on(&cores.measured, &["proxy", &url, folder, &count]),
            _upstream: upstream,
            _files: data,
        }
    }

    /// Confines this process to the load's core and starts nginx and the proxy in front of an upstream with TLS.
    pub(crate) fn beside_nginx() -> Self {
        let cores = Cores::of_workers(1);
        cores.confine_load();
        let files = tempfile::tempdir().unwrap();
        let TlsFiles { authority, certificate, key } = TlsFiles::written_to(files.path());
        let upstream = Process::start_on(&cores.load, &["upstream", &certificate, &key]);
        let (url, data) = (format!("https://{}", upstream.address), files.path().join("data"));
        let proxy = ["proxy", &url, data.to_str().unwrap(), "1", &authority];
        Self {
            passing: nginx::start(&cores.measured, upstream.address, files.path()),
            proxy: Process::start_on(&cores.measured, &proxy),
            _upstream: upstream,
            _files: files,
        }
    }

    /// Returns the proxy or the reference.
    pub(crate) fn side(&self, is_proxy: bool) -> &Process {
        if is_proxy { &self.proxy } else { &self.passing }
    }
}
