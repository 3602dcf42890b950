//! A broken variant of one source file.

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// What is broken, in words, or as `module::function call: Ordering -> Weaker`.
    pub(super) name: String,
    /// From the root of the repository.
    pub(super) file: String,
    pub(super) line: usize,
    /// The whole file, before and after.
    pub(super) sound: String,
    pub(super) broken: String,
    /// From the list of faults, not a weaker ordering.
    pub(super) planted: bool,
}

impl Mutant {
    pub(super) fn kind(&self) -> &'static str {
        if self.planted { "a planted fault" } else { "an ordering" }
    }

    /// Where it is, for a reader.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}
