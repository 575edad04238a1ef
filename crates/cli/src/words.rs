//! Words on the command line that stand for choices.

/// Declares an enum whose variants have a word each: for the command line, for reports, and for
/// messages between a parent process and its children.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($what:literal) {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!(
                        concat!("{:?} is no ", $what, ": choose {}"),
                        text,
                        [$($word),+].join(", ")
                    )),
                }
            }
        }
    };
}

pub(crate) use words;
