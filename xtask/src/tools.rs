//! What must be installed beside Rust itself, asked for before any work begins.

use crate::{
    lane::Lane,
    run::{self, Failure},
};

/// A tool, how to see that it is there, and how to get it.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    probe: &'static str,
    install: &'static str,
}

/// What `cargo xtask test` needs.
pub(crate) const STABLE: &[Tool] = &[
    Tool {
        name: "rustfmt",
        probe: "cargo fmt --version",
        install: "rustup component add rustfmt clippy",
    },
    Tool {
        name: "clippy",
        probe: "cargo clippy --version",
        install: "rustup component add rustfmt clippy",
    },
];

const NIGHTLY_RUST: Tool = Tool {
    name: "the nightly toolchain",
    probe: "cargo +nightly --version",
    install: "rustup toolchain install nightly",
};

/// What `cargo xtask miri` and `cargo xtask break` need.
pub(crate) const MIRI: &[Tool] = &[
    NIGHTLY_RUST,
    Tool {
        name: "Miri",
        probe: "cargo +nightly miri --version",
        install: "rustup component add --toolchain nightly miri rust-src",
    },
];

/// What the sanitizers need. Where the source of the standard library is missing, cargo says so itself.
pub(crate) const NIGHTLY: &[Tool] = &[NIGHTLY_RUST];

/// What `cargo xtask redis` needs.
pub(crate) const REDIS_CLIENTS: &[Tool] = &[
    Tool {
        name: "redis-cli",
        probe: "redis-cli --version",
        install: "apt-get install redis-tools",
    },
    Tool {
        name: "redis-benchmark",
        probe: "redis-benchmark --version",
        install: "apt-get install redis-tools",
    },
];

/// What `cargo xtask redis --versus` needs besides.
pub(crate) const REDIS_SERVER: &[Tool] = &[Tool {
    name: "redis-server",
    probe: "redis-server --version",
    install: "apt-get install redis-server",
}];

/// What `cargo xtask fuzz` needs.
pub(crate) const FUZZ: &[Tool] = &[
    NIGHTLY_RUST,
    Tool {
        name: "cargo-fuzz",
        probe: "cargo fuzz --version",
        install: "cargo install cargo-fuzz --locked",
    },
];

/// What `cargo xtask coverage` needs. To add a component that is there does nothing.
pub(crate) const COVERAGE: &[Tool] = &[
    Tool {
        name: "llvm-tools",
        probe: "rustup component add llvm-tools",
        install: "rustup component add llvm-tools",
    },
    Tool {
        name: "cargo-llvm-cov",
        probe: "cargo llvm-cov --version",
        install: "cargo install cargo-llvm-cov --locked",
    },
];

/// What `cargo xtask mutants` needs.
pub(crate) const MUTANTS: &[Tool] = &[Tool {
    name: "cargo-mutants",
    probe: "cargo mutants --version",
    install: "cargo install cargo-mutants --locked",
}];

/// What `cargo xtask msrv` needs.
pub(crate) const OLDEST_RUST: &[Tool] = &[Tool {
    name: "the oldest supported toolchain",
    probe: "cargo +1.88 --version",
    install: "rustup toolchain install 1.88 --profile minimal",
}];

/// Installs each tool that is missing.
pub(crate) fn provide(tools: &[Tool]) -> Result<(), Failure> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !tool.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run::all(&missing.iter().map(|tool| Lane::new(tool.name, tool.install)).collect::<Vec<_>>())?;
    require(tools)
}

/// Fails with the name of each tool that is missing and the command that installs it.
pub(crate) fn require(tools: &[Tool]) -> Result<(), Failure> {
    let missing: Vec<String> =
        tools.iter().filter(|tool| !tool.is_there()).map(Tool::advice).collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure(missing.join("\n       "))) }
}

impl Tool {
    fn is_there(&self) -> bool {
        let probe = Lane::new(self.name, self.probe).process().output();
        probe.is_ok_and(|output| output.status.success())
    }

    fn advice(&self) -> String {
        format!("{} is missing; to install it: {}", self.name, self.install)
    }
}

#[cfg(test)]
mod tests {
    use super::{Tool, require};

    #[test]
    fn a_missing_tool_is_named_with_its_remedy() {
        let here = Tool { name: "cargo", probe: "cargo --version", install: "" };
        let missing = Tool {
            name: "gear",
            probe: "cargo no-such-gear",
            install: "rustup component add gear",
        };
        let failure = require(&[here, missing]).expect_err("one is missing").to_string();
        assert_eq!(failure, "gear is missing; to install it: rustup component add gear");
    }
}
