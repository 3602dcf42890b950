//! Checks the licences of all that is built with the library, its tools included: permissive ones only.

use std::collections::BTreeMap;

use cargo_metadata::{MetadataCommand, Package};
use spdx::{Expression, Licensee, ParseMode};

use crate::{lane::root, run::Failure};

/// They ask for no more than to be named with what is made of the code.
const PERMISSIVE: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Workspaces of the repository; the first is the one that a test run builds.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

/// Whose licences.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only of what a test run builds on a machine like this one, for which nothing has to be downloaded.
    #[arg(long)]
    here: bool,
}

/// Prints how often each licence occurs; fails with the packages that have none of the permissive ones.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let permissive = permissive();
    let (mut counts, mut refused) = (BTreeMap::<String, usize>::new(), Vec::new());
    for package in packages(options.here)?.values() {
        let licence = package.license.as_deref().unwrap_or("none");
        *counts.entry(licence.to_owned()).or_default() += 1;
        if let Err(why) = judge(licence, &permissive) {
            refused.push(format!("{} {}: {why}", package.name, package.version));
        }
    }
    for (licence, count) in &counts {
        println!("{count:4}  {licence}");
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure(refused.join("\n       "))) }
}

/// Every package that some build takes in, also those for other systems, by its name and version.
fn packages(here: bool) -> Result<BTreeMap<String, Package>, Failure> {
    let workspaces = if here { &WORKSPACES[..1] } else { &WORKSPACES[..] };
    let mut all = BTreeMap::new();
    for workspace in workspaces {
        let mut options = vec!["--locked".to_owned()];
        if here {
            options.extend(["--offline", "--filter-platform", "host-tuple"].map(str::to_owned));
        }
        let metadata = MetadataCommand::new()
            .manifest_path(root().join(workspace))
            .other_options(options)
            .exec()
            .map_err(|error| {
                Failure(format!("the packages of {workspace} are not known: {error}"))
            })?;
        all.extend(metadata.packages.into_iter().map(|package| (package.id.repr.clone(), package)));
    }
    Ok(all)
}

fn permissive() -> Vec<Licensee> {
    PERMISSIVE.map(|name| Licensee::parse(name).expect("a licence that SPDX knows")).into()
}

/// Fails, in words, unless `licence` lets one choose permissive terms. (Older packages write "/" for "OR".)
fn judge(licence: &str, permissive: &[Licensee]) -> Result<(), String> {
    let expression = Expression::parse_mode(licence, ParseMode::LAX).map_err(|error| {
        format!("\"{licence}\" is no licence that SPDX knows: {}", error.reason)
    })?;
    let is_permissive =
        expression.evaluate(|asked| permissive.iter().any(|ours| ours.satisfies(asked)));
    if is_permissive {
        Ok(())
    } else {
        Err(format!("\"{licence}\" is not among the permissive licences"))
    }
}

#[cfg(test)]
mod tests {
    use super::{judge, permissive};

    #[test]
    fn a_choice_of_permissive_terms_is_enough() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR LGPL-2.1-or-later",
            "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        ] {
            assert_eq!(judge(licence, &permissive()), Ok(()), "{licence}");
        }
    }

    #[test]
    fn what_asks_for_more_is_refused() {
        for licence in [
            "GPL-3.0-only",
            "MIT AND MPL-2.0",
            "Apache-2.0 WITH GPL-3.0-linking-exception",
            "none",
            "",
        ] {
            assert!(judge(licence, &permissive()).is_err(), "{licence}");
        }
    }
}
