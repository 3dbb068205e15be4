//! Tables of pages, each between two marks, that a test makes.

use std::sync::Mutex;

/// Compares what a page, by its path from this crate's folder, has between the marks of this name with `text`, or with `UPDATE_DOCS` set
/// writes that there.
pub fn check(page: &str, name: &str, text: &str) {
    // Tests run side by side, and each may write the page.
    static PAGE: Mutex<()> = Mutex::new(());
    let _page = PAGE.lock();
    let path = format!("{}/{page}", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(&path).unwrap();
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (from, to) = (doc.find(&start).unwrap() + start.len(), doc.find(&end).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{text}{}", &doc[..from], &doc[to..])).unwrap();
        return;
    }
    let test = env!("CARGO_CRATE_NAME");
    assert_eq!(&doc[from..to], text, "run `UPDATE_DOCS=1 cargo test -p gpumem-zoo --test {test}`");
}
