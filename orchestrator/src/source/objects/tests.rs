//! Copies of segments from a directory of objects.

use uuid::Uuid;

use super::*;

struct Bench {
    dir: tempfile::TempDir,
    archive: SegmentArchive,
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("objects")).unwrap();
        let archive = Self::archive(&dir, 0).await;
        Self { dir, archive }
    }

    async fn archive(dir: &tempfile::TempDir, shard: u32) -> SegmentArchive {
        let url = format!("file://{}/objects", dir.path().display()).parse().unwrap();
        let storage = ObjectStorage::open(&url, &S3Settings::of_variables([])).unwrap();
        SegmentArchive::open(&storage, Uuid::from_u128(1), shard).await.unwrap()
    }

    async fn commit(&mut self, number: u32, content: &[u8]) -> SegmentObject {
        let path = self.dir.path().join("segment");
        fs::write(&path, content).unwrap();
        let segment = self.archive.upload(number, &path).await.unwrap();
        self.archive.commit(1, 1, std::slice::from_ref(&segment)).await.unwrap();
        segment
    }

    fn url(&self) -> String {
        format!("file://{}/objects", self.dir.path().display())
    }

    /// Returns the copied shards, and the bytes that were fetched for them.
    async fn copied(&self, url: &str) -> Result<(Vec<CopiedShard>, u64), ObjectsError> {
        let progress = CopyProgress::default();
        let cache = self.dir.path().join("cache");
        let copied = copy_to(url, &S3Settings::of_variables([]), &cache, &progress).await?;
        let (done, all) = progress.bytes();
        assert_eq!(done, all);
        Ok((copied, done))
    }
}

fn read(dir: &Path, number: u32) -> Vec<u8> {
    fs::read(dir.join(segment_file_name(number))).unwrap()
}

#[tokio::test]
async fn a_segment_is_fetched_once_unless_its_copy_is_damaged() {
    let mut bench = Bench::new().await;
    bench.commit(1, b"one").await;
    let two = bench.commit(2, b"second").await;
    let (copied, bytes) = bench.copied(&bench.url()).await.unwrap();
    let [CopiedShard { shard: 0, dir }] = &copied[..] else { panic!("{copied:?}") };
    assert_eq!((read(dir, 1), read(dir, 2), bytes), (b"one".to_vec(), b"second".to_vec(), 9));
    assert_eq!(bench.copied(&bench.url()).await.unwrap().1, 0);
    fs::write(dir.join(segment_file_name(1)), b"0ne").unwrap();
    fs::write(dir.join(".fetch-of-a-killed-command"), b"on").unwrap();
    assert_eq!(bench.copied(&bench.url()).await.unwrap().1, 3);
    assert_eq!(read(dir, 1), b"one");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 2);

    // Its retention ended.
    bench.archive.remove(1, &[two]).await.unwrap();
    assert_eq!(bench.copied(&bench.url()).await.unwrap().1, 0);
    assert_eq!(segment_numbers(dir).unwrap(), [1]);
}

#[tokio::test]
async fn shards_are_copied_together_or_alone() {
    let mut bench = Bench::new().await;
    bench.commit(1, b"of shard 0").await;
    bench.archive = Bench::archive(&bench.dir, 5).await;
    bench.commit(1, b"of shard 5").await;
    let (copied, _) = bench.copied(&bench.url()).await.unwrap();
    let contents: Vec<_> = copied.iter().map(|copied| (copied.shard, read(&copied.dir, 1))).collect();
    assert_eq!(contents, [(0, b"of shard 0".to_vec()), (5, b"of shard 5".to_vec())]);
    let (alone, bytes) = bench.copied(&format!("{}/shard-5", bench.url())).await.unwrap();
    assert_eq!((alone.len(), bytes), (1, 0), "the same copies are used");
    assert_eq!(alone[0].dir, copied[1].dir);
    let absent = bench.copied(&format!("{}/shard-3", bench.url())).await.unwrap_err().to_string();
    assert!(absent.ends_with("objects has no shard 3: its shards are 0, 5"), "{absent}");
}

#[tokio::test]
async fn a_place_without_segments_says_where_the_captures_are() {
    let mut bench = Bench::new().await;
    bench.archive.claim(1).await.unwrap();
    let empty = bench.copied(&bench.url()).await.unwrap_err();
    assert!(matches!(empty, ObjectsError::Empty(_)), "{empty}");
}
