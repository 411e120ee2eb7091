//! The owner of an object at the engine: a process, and whether it still runs.

use std::fs;
use std::io::ErrorKind;

use serde::Serialize;

/// The initial process namespace of a machine, whose number the kernel fixes. Every process is visible from it.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The state of the process that created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerState {
    /// The process runs.
    Alive,
    /// The process has ended, and will not clean up.
    Gone,
    /// The state is unknown: the process is on another machine, or in a container that is not visible from here.
    Unseen,
}

/// A process, distinguished from every other process that had or will have its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    place: ProcessSpace,
    pid: u32,
    /// The start time in clock ticks after boot.
    started: u64,
}

/// The scope in which a process id is unique.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessSpace {
    /// The id of the machine, which survives a reboot. Empty if the machine has none.
    machine: String,
    boot: String,
    /// The namespace of process ids.
    namespace: String,
}

impl ProcessSpace {
    fn current() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        Some(Self {
            machine: machine.trim().replace(['/', ' '], "-"),
            boot: boot.trim().to_owned(),
            namespace: namespace.display().to_string(),
        })
    }
}

impl Owner {
    /// Returns this process, or `None` on systems without `/proc`.
    pub(crate) fn current() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { place: ProcessSpace::current()?, pid, started: started(pid)? })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, ' ');
        let started = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let mut place = parts.next()?.splitn(3, '/').map(str::to_owned);
        let place = ProcessSpace { machine: place.next()?, boot: place.next()?, namespace: place.next()? };
        Some(Self { place, pid, started })
    }

    /// Returns the state of the process. `engine_is_here` states that the engine runs on this machine, so that no other
    /// machine uses it.
    pub(crate) fn state(&self, engine_is_here: bool) -> OwnerState {
        let Some(here) = ProcessSpace::current() else { return OwnerState::Unseen };
        if self.place.boot != here.boot {
            // Another boot of the same machine has ended every process of the earlier one.
            let rebooted = engine_is_here && !here.machine.is_empty() && self.place.machine == here.machine;
            return if rebooted { OwnerState::Gone } else { OwnerState::Unseen };
        }
        if self.place.namespace == here.namespace {
            let alive = started(self.pid) == Some(self.started);
            return if alive { OwnerState::Alive } else { OwnerState::Gone };
        }
        match self.is_in_namespace_below() {
            Some(true) => OwnerState::Alive,
            // Only the initial namespace sees every process, so only there does absence prove the end.
            Some(false) if here.namespace == FIRST_NAMESPACE => OwnerState::Gone,
            _ => OwnerState::Unseen,
        }
    }

    /// Whether a process that is visible from here has this id in the owner's namespace. `None` if a candidate cannot
    /// be inspected.
    fn is_in_namespace_below(&self) -> Option<bool> {
        let mut all_seen = true;
        for process in fs::read_dir("/proc").ok()?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if innermost_id(pid) != Some(self.pid) || started(pid) != Some(self.started) {
                continue;
            }
            match fs::read_link(process.path().join("ns/pid")) {
                Ok(namespace) if namespace.as_os_str() == self.place.namespace.as_str() => return Some(true),
                Ok(_) => {}
                // The process has ended since the listing, or is about to.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => all_seen = false,
            }
        }
        all_seen.then_some(false)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ProcessSpace { machine, boot, namespace } = &self.place;
        write!(formatter, "{machine}/{boot}/{namespace} {} {}", self.pid, self.started)
    }
}

fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22. The second field is a name in brackets, which may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Returns a process's id in its own namespace, if that is not the namespace of this process.
fn innermost_id(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().skip(1).last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_judged_only_where_it_can_be_seen() {
        let me = Owner::current().unwrap();
        assert_eq!(Owner::parse(&me.to_string()), Some(me.clone()));
        assert_eq!(me.state(true), OwnerState::Alive);
        let same_id_later = Owner { started: me.started - 1, ..me.clone() };
        assert_eq!(same_id_later.state(false), OwnerState::Gone);
        let boot = "00000000-0000-0000-0000-000000000000".to_owned();
        let elsewhere =
            ProcessSpace { machine: "another".to_owned(), boot: boot.clone(), namespace: String::new() };
        assert_eq!(Owner { place: elsewhere, ..me.clone() }.state(true), OwnerState::Unseen);
        let before =
            Owner { place: ProcessSpace { machine: "mine".to_owned(), boot, ..me.place.clone() }, ..me };
        assert_eq!(before.state(false), OwnerState::Unseen);
    }

    proptest::proptest! {
        #[test]
        fn no_label_makes_it_panic(text in "[ /:a-z0-9\\[\\]-]{0,60}") {
            if let Some(owner) = Owner::parse(&text) {
                proptest::prop_assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
            }
        }
    }
}
