//! The keys of `task.toml` files that Harbor does not know.

use std::collections::BTreeMap;

use super::Task;

/// Warns of the ignored keys of these tasks in one line, each key with the number of its tasks.
pub(crate) fn warn_of_ignored_keys<'t>(tasks: impl IntoIterator<Item = &'t Task>) {
    let mut found: BTreeMap<&str, (usize, &Task)> = BTreeMap::new();
    for task in tasks {
        for key in &task.config.ignored_keys {
            found.entry(key).or_insert((0, task)).0 += 1;
        }
    }
    if !found.is_empty() {
        let keys: Vec<_> = found.iter().map(|(key, (count, first))| described(key, *count, first)).collect();
        tracing::warn!("ignoring keys of task.toml that Harbor does not know: {}", keys.join(", "));
    }
}

fn described(key: &str, count: usize, first: &Task) -> String {
    match count {
        1 => format!("{key} (in {})", first.dir.display()),
        _ => format!("{key} ({count} tasks, the first is {})", first.dir.display()),
    }
}
