//! Choices that a user makes by name, and reads about in help and documentation.

/// A choice among a few, each with a name and a line that says what it does.
pub trait Named: Copy + 'static {
    /// Every choice, in the order in which they are told.
    const ALL: &'static [Self];

    /// What a user writes.
    fn name(self) -> &'static str;

    /// What it does, in one line.
    fn about(self) -> &'static str;

    /// The choice of this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// Makes an enum of names. What the documentation of a variant says is what its users read.
macro_rules! named {
    ($(#[$doc:meta])* pub enum $choice:ident { $(#[doc = $about:literal] $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $choice {
            $(#[doc = $about] $variant,)*
        }

        impl $crate::export::choices::Named for $choice {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about.trim_ascii(),)*
                }
            }
        }
    };
}

pub(crate) use named;
