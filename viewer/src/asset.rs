//! The style sheet and the scripts, compiled in. Their addresses contain a hash, so that a browser caches them for good.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A file of the pages.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    /// The media type.
    pub(crate) media: &'static str,
    /// The content.
    pub(crate) text: &'static str,
}

pub(crate) static STYLE: Asset =
    Asset { name: "style.css", media: "text/css; charset=utf-8", text: include_str!("../assets/style.css") };
pub(crate) static SCRIPT: Asset = Asset {
    name: "script.js",
    media: "text/javascript; charset=utf-8",
    text: include_str!("../assets/script.js"),
};
/// The player of the page of screens, which the script comes before.
pub(crate) static SCREENS: Asset = Asset {
    name: "screens.js",
    media: "text/javascript; charset=utf-8",
    text: include_str!("../assets/screens.js"),
};

impl Asset {
    /// All files.
    pub(crate) const ALL: [&'static Self; 3] = [&STYLE, &SCRIPT, &SCREENS];

    /// Returns the path of the file on the server.
    pub(crate) fn address(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("/assets/{:016x}/{}", hasher.finish(), self.name)
    }

    /// Returns the asset with this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|asset| asset.address() == path)
    }
}
