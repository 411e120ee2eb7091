//! Choices that a user makes by name, with a description for help and documentation.

/// A choice among several, each with a name and a description of one line.
pub trait Named: Copy + 'static {
    /// Every choice, in the order of the help.
    const ALL: &'static [Self];

    /// The name that a user writes.
    fn name(self) -> &'static str;

    /// A description of one line.
    fn about(self) -> &'static str;

    /// Returns the choice with this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// Defines an enum of named choices. The doc comment of a variant is its description in help and documentation.
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
