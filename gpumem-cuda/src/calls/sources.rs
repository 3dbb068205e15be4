//! The texts of the kernels, which are part of the crate.

use super::formulas;
use std::sync::LazyLock;

/// A file of `kernels` with its text.
macro_rules! file {
    ($path:expr) => {
        (name_of($path), include_str!(concat!("../../kernels/", $path)))
    };
}

/// The kernel sources by file name, including headers.
pub static SOURCES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| [FILES, &generated()[..]].concat());

/// Returns the headers that are made of rows of the core.
fn generated() -> [(&'static str, &'static str); 2] {
    [("functions.cuh", formulas::FUNCTIONS.as_str()), ("losses.cuh", formulas::LOSSES.as_str())]
}

/// Makes [`FILES`] of the rows of the list of operations, and of the files that belong to no operation.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident: $family:ident $(:: $module:ident)*, [$($kernel:literal),*];)*) => {
        /// The sources that are files.
        const FILES: &[(&str, &str)] = &[
            $($(file!(concat!(stringify!($family), "/", $kernel)),)*)*
            file!("common/activation_mask.cuh"),
            file!("common/adaptive.cuh"),
            file!("common/advance.cuh"),
            file!("common/base.cuh"),
            file!("common/codes.cuh"),
            file!("common/coding.cuh"),
            file!("common/descent.cuh"),
            file!("common/grid_barrier.cuh"),
            file!("common/layout.cuh"),
            file!("common/matrices.cuh"),
            file!("common/multi_tensor.cuh"),
            file!("common/narrow.cuh"),
            file!("common/operation.cuh"),
            file!("common/pack.cuh"),
            file!("common/part.cuh"),
            file!("common/partial_sums.cuh"),
            file!("common/planes.cuh"),
            file!("common/random.cuh"),
            file!("common/real.cuh"),
            file!("common/rows.cuh"),
            file!("common/schedule.cuh"),
            file!("common/vector16.cuh"),
            file!("common/volumes.cuh"),
            file!("loss/loss.cuh"),
            file!("elementwise/chain.cu"),
            file!("loss/contrastive.cu"),
            file!("loss/cosine_embedding.cu"),
            file!("loss/ctc.cu"),
            file!("loss/loss.cu"),
            file!("loss/margin_ranking.cu"),
            file!("loss/mined.cu"),
            file!("loss/triplet_margin.cu"),
            file!("movement/movement.cu"),
            file!("norm/statistics.cu"),
            file!("optimizer/average.cu"),
            file!("optimizer/check.cu"),
            file!("optimizer/factored.cu"),
            file!("optimizer/muon.cu"),
            file!("optimizer/norm.cu"),
            file!("optimizer/optimizer.cu"),
            file!("optimizer/state.cu"),
        ];
    };
}
gpumem_core::for_each_operation!(sources);

/// Returns the part of a path after its last slash.
const fn name_of(path: &'static str) -> &'static str {
    let mut start = path.len();
    while start > 0 && path.as_bytes()[start - 1] != b'/' {
        start -= 1;
    }
    path.split_at(start).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs::read_dir;
    use std::path::Path;

    /// Every file of the folder is in the list, once, by its own name, and so is every generated header.
    #[test]
    fn every_kernel_is_listed_once() {
        let names: BTreeSet<String> = SOURCES.iter().map(|(file, _)| file.to_string()).collect();
        assert_eq!(names.len(), SOURCES.len());
        let families = read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")).unwrap();
        let files = families.flat_map(|family| read_dir(family.unwrap().path()).unwrap());
        let mut files: BTreeSet<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.extend(generated().map(|(file, _)| file.to_string()));
        assert_eq!(names, files);
    }
}
