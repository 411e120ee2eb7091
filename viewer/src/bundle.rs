//! Writes the pages of a collection as a static site: `rolltap view --bundle`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maud::Markup;
use tokenizers::Tokenizer;

use crate::asset::Asset;
use crate::collection::screens::Screens;
use crate::collection::{Collection, Job, JobContent, TrialContent};
use crate::filter::Filter;
use crate::page;
use crate::page::link::Links;
use crate::page::tokens::{TokenTexts, WINDOW};
use crate::search::search;

/// The addresses of the pages' files, relative to the first page.
const FILES: Links = Links::Bundle { depth: 0 };

/// Why a bundle is not written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The directory has files already.
    #[error("{} is not empty: give a directory that is empty or does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// The file system refuses.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The files and bytes of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bundled {
    /// The number of files.
    pub files: u64,
    /// The bytes of all files together.
    pub bytes: u64,
}

/// Writes every page of the collection into a directory, which must be empty or absent. `progress` gets the number of
/// written trials and of all trials.
///
/// # Errors
/// The directory is not empty, or cannot be written.
pub fn write_bundle(
    collection: &Collection,
    tokenizer: Option<&Tokenizer>,
    dir: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Bundled, BundleError> {
    let failed = |source| BundleError::Write { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    if fs::read_dir(dir).map_err(failed)?.next().is_some() {
        return Err(BundleError::NotEmpty(dir.to_owned()));
    }
    let mut bundle = Bundle { dir, texts: TokenTexts(tokenizer), bundled: Bundled::default() };
    for file in Asset::ALL {
        bundle.asset(file)?;
    }
    bundle.page(&FILES.jobs(), |links| page::jobs::page(links, collection))?;
    let contents: Vec<_> = collection.jobs().iter().map(|job| (job, job.content())).collect();
    let all: usize = contents.iter().map(|(_, content)| content.trials.len()).sum();
    let mut written = 0;
    for (job, content) in &contents {
        bundle.job(job, content)?;
        for entry in &content.trials {
            if let Some(trial) = content.trial(&entry.id) {
                bundle.trial(job, &trial)?;
            }
            written += 1;
            progress(written, all);
        }
    }
    Ok(bundle.bundled)
}

/// A bundle during its construction.
struct Bundle<'b> {
    dir: &'b Path,
    texts: TokenTexts<'b>,
    bundled: Bundled,
}

impl Bundle<'_> {
    /// Writes the pages of a job and of its groups.
    fn job(&mut self, job: &Job, content: &JobContent) -> Result<(), BundleError> {
        let pages = content.trials.len().div_ceil(page::job::TRIALS).max(1);
        for number in 1..=pages {
            let filter = Filter { page: number.to_string(), ..Filter::default() };
            let address = FILES.trials(job.name(), &filter);
            let found = search(content, &filter);
            self.page(&address, |links| page::job::page(links, job, content, &filter, &found))?;
        }
        let groups: BTreeSet<&String> =
            content.trials.iter().filter_map(|trial| trial.group.as_ref()).collect();
        for group in groups {
            let samples = content.group(group);
            self.page(&FILES.group(job.name(), group), |links| {
                page::group::page(links, job, group, &samples)
            })?;
        }
        Ok(())
    }

    /// Writes the pages of a trial: its branches with all tokens, and its files.
    fn trial(&mut self, job: &Job, trial: &TrialContent) -> Result<(), BundleError> {
        let (name, id) = (job.name(), &trial.entry.id);
        self.page(&FILES.trial(name, id), |links| page::trial::page(links, job, trial))?;
        for (index, row) in trial.rows.iter().enumerate() {
            let (address, texts) = (FILES.branch(name, id, index), self.texts);
            self.page(&address, |links| page::branch::page(links, job, trial, index, row, 0, &texts))?;
            // The script of the branch's page inserts the windows there, so their addresses are relative to that page.
            let links = Links::Bundle { depth: Links::depth_of(&address) };
            for from in (0..row.token_ids.len()).step_by(WINDOW).skip(1) {
                let window = page::tokens::window(trial, row, from, &texts, |from| {
                    links.tokens(name, id, index, from)
                });
                self.write(&FILES.tokens(name, id, index, from), &window.into_string())?;
            }
        }
        self.screens(job, trial)?;
        for file in trial.files.list() {
            if let Some(read) = file.read() {
                let address = FILES.file(name, id, &file.name);
                self.page(&address, |links| page::trial::file(links, job, trial, &file.name, &read))?;
            }
        }
        Ok(())
    }

    /// Writes the screens of a trial's terminal, if it has any.
    fn screens(&mut self, job: &Job, trial: &TrialContent) -> Result<(), BundleError> {
        let (name, id) = (job.name(), &trial.entry.id);
        let Some(screens) = Screens::read(&trial.files.list()) else { return Ok(()) };
        let address = FILES.screens(name, id);
        self.page(&address, |links| page::screens::page(links, job, trial, &screens))?;
        // The script of that page inserts the windows there, so their addresses are relative to it.
        let links = Links::Bundle { depth: Links::depth_of(&address) };
        let mut from = page::screens::end_of_window(&screens, 0);
        while from < screens.screens.len() {
            let window = page::screens::window(&links, job, trial, &screens, from);
            self.write(&FILES.screens_from(name, id, from), &window.into_string())?;
            from = page::screens::end_of_window(&screens, from);
        }
        Ok(())
    }

    /// Writes one page. `make` gets the links of a page at this address.
    fn page(&mut self, address: &str, make: impl FnOnce(&Links) -> Markup) -> Result<(), BundleError> {
        let page = make(&Links::Bundle { depth: Links::depth_of(address) });
        self.write(address, &page.into_string())
    }

    fn asset(&mut self, asset: &Asset) -> Result<(), BundleError> {
        self.write(&FILES.asset(asset), asset.text)
    }

    fn write(&mut self, address: &str, text: &str) -> Result<(), BundleError> {
        let path = self.dir.join(address);
        let failed = |source| BundleError::Write { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&path, text).map_err(failed)?;
        self.bundled.files += 1;
        self.bundled.bytes += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
