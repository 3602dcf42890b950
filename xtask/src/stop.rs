//! Stops a process that hangs, with all that it has started.

use std::{
    fs, io,
    process::{Command, Stdio},
};

/// Kills the process and its descendants. (They are in no group of their own, so that an interrupt at the terminal reaches
/// them too.)
pub(crate) fn tree(process: u32) -> io::Result<()> {
    let parents = parents();
    let mut doomed = vec![process];
    let mut at = 0;
    while let Some(&parent) = doomed.get(at) {
        doomed.extend(parents.iter().filter(|&&(_, of)| of == parent).map(|&(child, _)| child));
        at += 1;
    }
    // The shell's own `kill`, because the library of this program has none for others than children.
    let doomed: Vec<_> = doomed.iter().map(u32::to_string).collect();
    let command = format!("kill -s KILL {}", doomed.join(" "));
    Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().map(drop)
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // What follows the name, which may hold anything, are the state and the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((process, parent))
    })
    .collect()
}
