//! Images in files: a folder for each class, or a list in a CSV.

use super::array::label;
use super::rows::Rows;
use crate::dataset::Dataset;
use crate::draw::Draw;
use crate::error::{Error, ErrorKind, Result};
use crate::image::{MOST_IMAGE, Transforms};
use crate::sample::Sample;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The greatest depth of nested folders of a class.
const DEEPEST: usize = 32;

/// The most bytes of a CSV, whose paths are all held in memory.
const MOST_LIST: u64 = 256 << 20;

/// Images in files with a class each, decoded on demand.
///
/// Every kind of PNG and JPEG is converted to the channels that the network takes: 1, 3 or 4. As in torchvision:
///
/// * alpha is dropped if the network takes no fourth channel, and a colour is converted to grey by PIL's weights;
/// * pixels stay in the order in which they are stored: the orientation that a camera writes into EXIF is not applied. Rotate such images
///   first; otherwise training and use would differ;
/// * of 16 bits a channel, the upper 8 are taken. PIL does so for colours, but clips greys of 16 bits.
///
/// After the transforms, images must have the network's height and width. Files outside of the folder are refused, also if a link leads
/// there.
///
/// ```no_run
/// use gpumem_data::sets::ImageFolder;
/// use gpumem_data::Transforms;
///
/// let training = ImageFolder::open("imagenet/train")?
///     .transforms(Transforms::new().random_resized_crop(224).random_horizontal_flip(0.5));
/// let validation = ImageFolder::csv("pictures", "pictures/validation.csv")?
///     .classes(10)?
///     .transforms(Transforms::new().resize(256).center_crop(224));
/// # Ok::<(), gpumem_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageFolder {
    /// The folder, or the CSV.
    source: PathBuf,
    /// Names of the classes, in the order of their numbers. Empty if a CSV has numbers.
    names: Vec<String>,
    files: Vec<(PathBuf, u32)>,
    transforms: Transforms,
    limit: u64,
}

impl ImageFolder {
    /// Opens a folder that has a folder for each class, as torchvision's `ImageFolder`: classes are numbered by their sorted names.
    ///
    /// Files that end in `.png`, `.jpg` or `.jpeg` are images, at any depth; other files, and names that begin with a dot, are ignored.
    ///
    /// # Errors
    /// A folder that cannot be read, has no folders, or has one without images; a link to a file outside of the folder.
    pub fn open(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let whole = canonical(root)?;
        let mut names = Vec::new();
        for entry in sorted(root)? {
            if entry.is_dir() {
                names.push(name(&entry));
            }
        }
        if names.is_empty() {
            let wanted = "put a folder for each class into it, with images in it".into();
            return Err(Error::new(ErrorKind::Empty { wanted }).with_file(root));
        }
        let mut files = Vec::new();
        for (class, name) in names.iter().enumerate() {
            let (folder, before) = (root.join(name), files.len());
            walk(&folder, &whole, class as u32, DEEPEST, &mut files)?;
            if files.len() == before {
                let wanted = "put .png or .jpg images into the folder of this class, or remove it".into();
                return Err(Error::new(ErrorKind::Empty { wanted }).with_file(folder));
            }
        }
        Ok(ImageFolder { names, ..ImageFolder::new(root, files) })
    }

    /// Opens a CSV whose lines are a path inside `root` and a label that counts from 0. A first line `file,label` is a header.
    ///
    /// # Errors
    /// A file that cannot be read, a line that is not a path and a number, a path that does not exist or leads out of `root`, and a CSV
    /// without lines. All files are looked up, but none is read.
    pub fn csv(root: impl AsRef<Path>, list: impl AsRef<Path>) -> Result<ImageFolder> {
        let (root, list) = (root.as_ref(), list.as_ref());
        let files = rows(root, list).map_err(|error| error.with_file(list))?;
        if files.is_empty() {
            let wanted = "add lines of a path and a label, such as `images/7.png,2`".into();
            return Err(Error::new(ErrorKind::Empty { wanted }).with_file(list));
        }
        Ok(ImageFolder::new(list, files))
    }

    fn new(source: &Path, files: Vec<(PathBuf, u32)>) -> ImageFolder {
        ImageFolder {
            source: source.into(),
            names: Vec::new(),
            files,
            transforms: Transforms::new(),
            limit: MOST_IMAGE,
        }
    }

    /// Checks that there are no more than `classes` classes.
    ///
    /// # Errors
    /// [`ErrorKind::Label`] with the first file whose label is not below `classes`.
    pub fn classes(self, classes: u64) -> Result<ImageFolder> {
        for (file, class) in &self.files {
            label(i64::from(class.cast_signed()), classes).map_err(|error| error.with_file(file))?;
        }
        Ok(self)
    }

    /// Sets the transforms of the images.
    #[must_use]
    pub fn transforms(self, transforms: Transforms) -> ImageFolder {
        ImageFolder { transforms, ..self }
    }

    /// Sets the most bytes of a file, of a decoded image, and of a transformed one. The default is [`MOST_IMAGE`].
    #[must_use]
    pub fn limit(self, bytes: u64) -> ImageFolder {
        ImageFolder { limit: bytes, ..self }
    }

    /// Returns the names of the classes, in the order of their numbers. Empty for a CSV.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the file and the label of each sample.
    pub fn files(&self) -> &[(PathBuf, u32)] {
        &self.files
    }
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        let (path, class) = &self.files[index];
        sample.target(0)?.put_label(*class).map_err(|error| error.with_file(path))?;
        let (slot, scratch) = sample.input_and_scratch(0)?;
        let &[channels @ (1 | 3 | 4), _, _] = slot.shape() else {
            return Err(Error::setting(format!(
                "images go into a network of 1, 3 or 4 channels, height and width, but it takes {:?}; declare it as `Images<u8, 3, H, W>`",
                slot.shape()
            )));
        };
        let canvas = &mut scratch.canvas;
        canvas.read(path, &mut scratch.bytes, channels, self.limit)?;
        canvas.apply(&self.transforms, draw).and_then(|()| canvas.put(slot)).map_err(|error| error.with_file(path))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.source)
    }
}

/// Adds the images of a folder and of the folders in it, sorted by name. None may be outside of `root`, which has no links.
fn walk(folder: &Path, root: &Path, class: u32, depth: usize, files: &mut Vec<(PathBuf, u32)>) -> Result<()> {
    if depth == 0 {
        let what = format!("lies in more than {DEEPEST} folders; move it up");
        return Err(Error::format(what).with_file(folder));
    }
    if is_link(folder)? {
        let what = "is a link to a folder; put the folder itself here, or link its images";
        return Err(Error::format(what).with_file(folder));
    }
    for entry in sorted(folder)? {
        if entry.is_dir() {
            walk(&entry, root, class, depth - 1, files)?;
        } else if is_image(&entry) {
            if is_link(&entry)? {
                inside(root, &entry)?;
            }
            files.push((entry, class));
        }
    }
    Ok(())
}

fn is_link(path: &Path) -> Result<bool> {
    let metadata = fs::symlink_metadata(path).map_err(|error| Error::io(path, &error))?;
    Ok(metadata.file_type().is_symlink())
}

/// Returns the entries of a folder by their sorted names, without those that begin with a dot.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, &error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| Error::io(folder, &error)));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.retain(|path| !name(path).starts_with('.'));
    paths.sort_unstable();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["png", "jpg", "jpeg"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Error::io(path, &error))
}

/// Returns an error if `file` is outside of `root`, which has no links.
fn inside(root: &Path, file: &Path) -> Result<()> {
    if canonical(file)?.starts_with(root) {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Outside { root: root.into() }).with_file(file))
    }
}

/// Reads the lines of a CSV: paths and labels.
fn rows(root: &Path, list: &Path) -> Result<Vec<(PathBuf, u32)>> {
    let whole = canonical(root)?;
    let file = super::bytes::open(list)?;
    let length = file.metadata().map_err(|error| Error::io(list, &error))?.len();
    if length > MOST_LIST {
        let advice = "split the list, and open its parts one after the other";
        return Err(Error::new(ErrorKind::TooLarge { needed: Some(length), limit: MOST_LIST, advice }));
    }
    let mut rows = Rows::new(BufReader::new(file));
    let mut files = Vec::new();
    while rows.advance()? {
        let row =
            |what: &str| rows.at(Error::format(format!("{what}; write a path and a label, such as `images/7.png,2`")));
        let (Some(path), Some(class), 2) = (rows.field(0), rows.field(1), rows.count()) else {
            return Err(row(&format!("has {} fields", rows.count())));
        };
        let Ok(class) = class.parse::<i64>() else {
            if files.is_empty() && rows.line() == 1 {
                continue;
            }
            return Err(row(&format!("has the label `{class}`, which is no whole number")));
        };
        let class = label(class, u64::MAX).map_err(|error| rows.at(error))?;
        let path = root.join(path);
        inside(&whole, &path).map_err(|error| rows.at(error))?;
        files.push((path, class));
    }
    Ok(files)
}
