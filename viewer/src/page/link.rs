//! The addresses of pages and files, on a server and in a static bundle.

use std::hash::{DefaultHasher, Hash, Hasher};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::Format;

use crate::asset::Asset;
use crate::filter::Filter;

/// The bytes that a name keeps in an address.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The longest readable part of a name in the path of a file.
const READABLE: usize = 60;

/// Makes the addresses in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// The page comes from a server. Names are percent-encoded, because tasks and groups contain slashes.
    Live {
        /// The path of the first page, without a slash at its end. It is empty for the root of the server.
        base: &'static str,
    },
    /// The page is a file in a folder that many levels below the first page. Names are reduced to letters that every file
    /// system and every file server takes literally, with a hash. There are no queries.
    Bundle {
        /// The number of folders between the first page and this page.
        depth: usize,
    },
}

impl Links {
    /// Returns the path of a page's file in a bundle, relative to the first page. `address` comes from a `Bundle` of depth
    /// 0.
    pub(crate) fn depth_of(address: &str) -> usize {
        address.matches('/').count()
    }

    /// Whether a server answers queries and sends changes.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    fn name(&self, name: &str) -> String {
        match self {
            // A browser takes `.` and `..` as steps of the path.
            Self::Live { .. } if matches!(name, "." | "..") => name.replace('.', "%2E"),
            Self::Live { .. } => utf8_percent_encode(name, ENCODED).to_string(),
            Self::Bundle { .. } => literal(name),
        }
    }

    /// Returns the address of a page, given its path without a slash before it.
    fn page(&self, path: &str) -> String {
        match self {
            // A router nested below `base` answers there without a slash.
            Self::Live { base } if path.is_empty() && !base.is_empty() => (*base).to_owned(),
            Self::Live { base } => format!("{base}/{path}"),
            Self::Bundle { depth } if path.is_empty() => format!("{}index.html", "../".repeat(*depth)),
            Self::Bundle { depth } => format!("{}{path}/index.html", "../".repeat(*depth)),
        }
    }

    pub(crate) fn jobs(&self) -> String {
        self.page("")
    }

    fn job_path(&self, job: &str) -> String {
        format!("jobs/{}", self.name(job))
    }

    pub(crate) fn job(&self, job: &str) -> String {
        self.page(&self.job_path(job))
    }

    /// Returns the address of the page of a job with a filter. A bundle has the pages of all trials only.
    pub(crate) fn trials(&self, job: &str, filter: &Filter) -> String {
        match self {
            Self::Live { .. } => filter.address(&self.job(job)),
            Self::Bundle { .. } if filter.page_index() == 0 => self.job(job),
            Self::Bundle { .. } => {
                self.page(&format!("{}/pages/{}", self.job_path(job), filter.page_index() + 1))
            }
        }
    }

    pub(crate) fn group(&self, job: &str, group: &str) -> String {
        self.page(&format!("{}/groups/{}", self.job_path(job), self.name(group)))
    }

    fn trial_path(&self, job: &str, trial: &str) -> String {
        format!("{}/trials/{}", self.job_path(job), self.name(trial))
    }

    pub(crate) fn trial(&self, job: &str, trial: &str) -> String {
        self.page(&self.trial_path(job, trial))
    }

    pub(crate) fn file(&self, job: &str, trial: &str, name: &str) -> String {
        self.page(&format!("{}/files/{}", self.trial_path(job, trial), self.name(name)))
    }

    fn branch_path(&self, job: &str, trial: &str, branch: usize) -> String {
        format!("{}/branches/{branch}", self.trial_path(job, trial))
    }

    pub(crate) fn branch(&self, job: &str, trial: &str, branch: usize) -> String {
        self.page(&self.branch_path(job, trial, branch))
    }

    /// Returns the address of a token in its branch.
    pub(crate) fn token(&self, job: &str, trial: &str, branch: usize, token: usize) -> String {
        let page = self.branch(job, trial, branch);
        match self {
            Self::Live { .. } => format!("{page}?at={token}#t{token}"),
            Self::Bundle { .. } => format!("{page}#t{token}"),
        }
    }

    /// Returns the address of the tokens of a branch from one on.
    pub(crate) fn tokens(&self, job: &str, trial: &str, branch: usize, from: usize) -> String {
        let branch = self.branch_path(job, trial, branch);
        match self {
            Self::Live { .. } => self.page(&format!("{branch}/tokens?from={from}")),
            Self::Bundle { .. } => self.page(&format!("{branch}/tokens/{from}")),
        }
    }

    /// Returns the address of a trial's record in one format, with the tokens of a branch. Only servers have records.
    pub(crate) fn record(&self, job: &str, trial: &str, format: Format, branch: usize) -> String {
        let path = self.page(&format!("{}/records/{}", self.trial_path(job, trial), format.name()));
        if branch == 0 { path } else { format!("{path}?branch={branch}") }
    }

    /// Returns the address of the tokens of a branch in a record from one on.
    pub(crate) fn record_tokens(
        &self,
        job: &str,
        trial: &str,
        format: Format,
        branch: usize,
        from: usize,
    ) -> String {
        let trial = self.trial_path(job, trial);
        self.page(&format!("{trial}/records/{}/tokens?branch={branch}&from={from}", format.name()))
    }

    /// Returns the address of the screens of a trial's terminal.
    pub(crate) fn screens(&self, job: &str, trial: &str) -> String {
        self.page(&format!("{}/screens", self.trial_path(job, trial)))
    }

    /// Returns the address of the screens from one on.
    pub(crate) fn screens_from(&self, job: &str, trial: &str, from: usize) -> String {
        let screens = format!("{}/screens", self.trial_path(job, trial));
        match self {
            Self::Live { .. } => self.page(&format!("{screens}/window?from={from}")),
            Self::Bundle { .. } => self.page(&format!("{screens}/{from}")),
        }
    }

    /// Returns the address that sends the changes of a job.
    pub(crate) fn changes(&self, job: &str) -> Option<String> {
        self.is_live().then(|| self.page(&format!("{}/changes", self.job_path(job))))
    }

    pub(crate) fn asset(&self, asset: &Asset) -> String {
        match self {
            Self::Live { base } => format!("{base}{}", asset.address()),
            Self::Bundle { depth } => format!("{}assets/{}", "../".repeat(*depth), asset.name),
        }
    }
}

/// Returns a name of letters that stand for themselves everywhere: the readable part, and a hash of the whole name.
fn literal(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let readable = name.chars().map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => letter,
        _ => '-',
    });
    let readable: String = readable.take(READABLE).collect();
    format!("{readable}-{:08x}", hasher.finish() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_are_one_step_of_a_path() {
        let live = Links::Live { base: "" };
        assert_eq!(live.group("job", "a/b c"), "/jobs/job/groups/a%2Fb%20c");
        assert_eq!(live.trial("job", ".."), "/jobs/job/trials/%2E%2E");
        let bundled = Links::Bundle { depth: 2 }.group("job", "../a/b");
        assert!(bundled.starts_with("../../jobs/job-") && bundled.contains("/groups/---a-b-"), "{bundled}");
    }

    #[test]
    fn pages_below_a_path_begin_with_it() {
        let live = Links::Live { base: "/ui" };
        assert_eq!((live.jobs().as_str(), live.job("job").as_str()), ("/ui", "/ui/jobs/job"));
        assert!(live.asset(&crate::asset::STYLE).starts_with("/ui/assets/"));
        assert_eq!(Links::Live { base: "" }.jobs(), "/");
    }

    #[test]
    fn a_bundle_has_a_file_for_each_window() {
        let links = Links::Bundle { depth: 0 };
        assert!(links.tokens("job", "trial", 1, 2000).ends_with("/branches/1/tokens/2000/index.html"));
        assert_eq!(Links::depth_of(&links.jobs()), 0);
        assert_eq!(Links::depth_of(&links.job("job")), 2);
    }
}
