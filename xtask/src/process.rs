//! Runs a process for a limited time, and work on all cores.

use std::{
    fs, io,
    num::NonZeroUsize,
    process::{Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// Runs `command` until it ends. If it takes longer than `limit`, or `look` returns true, kills it
/// with all its descendants and returns `None`. `look` is called with the process's number.
pub(crate) fn supervise(
    command: &mut Command,
    limit: Duration,
    mut look: impl FnMut(u32) -> bool,
) -> io::Result<Option<ExitStatus>> {
    let (start, mut child) = (Instant::now(), command.spawn()?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit || look(child.id()) {
            kill_tree(child.id())?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Kills a process and its descendants. They stay in the process group of xtask, so that an
/// interrupt at the terminal reaches them too.
fn kill_tree(root: u32) -> io::Result<()> {
    let parents = parents();
    let mut doomed = vec![root];
    let mut at = 0;
    while let Some(&parent) = doomed.get(at) {
        doomed.extend(parents.iter().filter(|&&(_, of)| of == parent).map(|&(child, _)| child));
        at += 1;
    }
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -KILL \"$@\"", "kill"]).args(doomed.iter().map(u32::to_string));
    kill.stderr(Stdio::null());
    kill.status().map(drop)
}

/// Returns every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pair = |entry: fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The state and the parent follow the name, which may contain anything.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((process, parent))
    };
    all.filter_map(pair).collect()
}

/// Calls `work` for each item, on all cores. Returns the results in the order of their ends.
pub(crate) fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (waiting, done) = (Mutex::new(items.iter()), Mutex::new(Vec::new()));
    let next = || waiting.lock().expect("no holder panics").next();
    let work = || {
        while let Some(item) = next() {
            let result = work(item);
            done.lock().expect("no holder panics").push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(work);
        }
    });
    done.into_inner().expect("no holder panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_takes_too_long_is_killed_with_its_descendants() {
        let (start, (reader, writer)) = (Instant::now(), io::pipe().expect("a pipe"));
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & sleep 60"]).stdout(writer);
        let ended = supervise(&mut shell, Duration::from_millis(300), |_| false).expect("started");
        drop(shell);
        // The pipe ends when the last process that has its other end is gone.
        assert_eq!(io::read_to_string(reader).expect("readable"), "");
        assert!(ended.is_none() && start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_process_that_ends_has_a_status() {
        let status = |word: &str| supervise(&mut Command::new(word), Duration::MAX, |_| false);
        assert!(status("true").expect("started").expect("ended").success());
        assert!(!status("false").expect("started").expect("ended").success());
    }
}
