//! The tokens of `--admin-tokens` as the file has them now.
//!
//! The file is polled: one `stat` twice a second costs nothing. Notifications of the kernel would miss changes on
//! network file systems, and would follow neither a replaced file nor the symbolic links of mounted Kubernetes secrets
//! without watches on several directories.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::AdminTokens;
use super::file::AdminTokensError;
use crate::common::file_version::FileVersion;
use crate::common::refusal_counts::RefusalCounts;

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_millis(500);

/// The tokens that are valid now. A file that cannot be used does not change them.
#[derive(Debug)]
pub(crate) struct LiveTokens {
    path: PathBuf,
    tokens: RwLock<Arc<AdminTokens>>,
    /// The version of the file at the start.
    first: Option<FileVersion>,
}

/// Decides when to read the file again.
#[derive(Debug)]
struct Changes {
    /// The version that was read last. `None` if there was no file.
    read: Option<FileVersion>,
    /// The version at the last look.
    seen: Option<FileVersion>,
}

impl LiveTokens {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or its text is wrong.
    pub(crate) fn start(path: PathBuf) -> Result<Self, AdminTokensError> {
        // The version comes first, so that a change during the reading is a later version.
        let first = FileVersion::of(&path);
        let tokens = AdminTokens::read(&path)?;
        warn_of_expired(&tokens);
        Ok(Self { path, tokens: RwLock::new(Arc::new(tokens)), first })
    }

    /// Returns the tokens.
    pub(crate) fn tokens(&self) -> Arc<AdminTokens> {
        // A poisoned lock is still usable, because the tokens are replaced as a whole.
        Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again after each change, until `stopped`.
    pub(crate) async fn watch(self: Arc<Self>, counts: RefusalCounts, stopped: CancellationToken) {
        let mut changes = Changes { read: self.first, seen: self.first };
        let mut looks = tokio::time::interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stopped.run_until_cancelled(looks.tick()).await.is_some() {
            let path = self.path.clone();
            let version = tokio::task::spawn_blocking(move || FileVersion::of(&path)).await;
            if version.is_ok_and(|version| changes.is_new(version)) {
                self.read_again(&counts).await;
            }
        }
    }

    async fn read_again(&self, counts: &RefusalCounts) {
        let path = self.path.clone();
        let read: Result<Result<AdminTokens, AdminTokensError>, JoinError> =
            tokio::task::spawn_blocking(move || AdminTokens::read(&path)).await;
        match read {
            Ok(Ok(tokens)) => {
                warn_of_expired(&tokens);
                tracing::info!(file = %self.path.display(), tokens = tokens.iter().count(), "read the admin tokens again");
                *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
                counts.admin_tokens_are_stale(false);
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the admin tokens of before stay valid");
                counts.admin_tokens_are_stale(true);
            }
            Err(error) => tracing::error!(%error, "the admin tokens were not read"),
        }
    }
}

impl Changes {
    /// Whether the file is to be read: it differs from the version that was read, and did not change since the last
    /// look. A program that writes the file in several steps is so waited for.
    fn is_new(&mut self, version: Option<FileVersion>) -> bool {
        let is_settled = std::mem::replace(&mut self.seen, version) == version;
        let is_new = is_settled && version != self.read;
        if is_new {
            self.read = version;
        }
        is_new
    }
}

fn warn_of_expired(tokens: &AdminTokens) {
    let now = jiff::Timestamp::now();
    for token in tokens.iter().filter(|token| token.expires().is_some_and(|expires| expires <= now)) {
        tracing::warn!(token = %token.name, "an admin token has expired");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size: u64) -> Option<FileVersion> {
        Some(FileVersion { device: 1, inode: 2, size, modified: (3, 4), changed: (5, 6) })
    }

    #[test]
    fn a_change_is_read_once_and_only_when_it_has_settled() {
        let mut changes = Changes { read: version(1), seen: version(1) };
        let looks =
            [(1, false), (2, false), (3, false), (3, true), (3, false), (1, false), (1, true), (1, false)];
        for (look, (size, is_new)) in looks.into_iter().enumerate() {
            assert_eq!(changes.is_new(version(size)), is_new, "look {look}");
        }
    }

    #[test]
    fn a_file_that_is_missing_between_two_looks_is_waited_for() {
        let mut changes = Changes { read: version(1), seen: version(1) };
        assert!(!changes.is_new(None) && !changes.is_new(version(2)) && changes.is_new(version(2)));
        assert!(!changes.is_new(None) && changes.is_new(None) && !changes.is_new(None));
        assert!(!changes.is_new(version(2)) && changes.is_new(version(2)), "the same file is back");
    }
}
