// What all requests together may keep in memory at a moment: each takes a share that grows with
// what it keeps, and gives it back when it ends.
//
//   ByteBudget budget{64 << 20};
//   ByteBudget::Share share{budget};
//   if (!share.grow(piece.size())) return refuse();  // the others have it all
//
// Safe from many threads; a share is used by one at a time, and its budget must outlive it.
#pragma once

#include <atomic>
#include <cstdint>

namespace atelier {

class ByteBudget {
 public:
  explicit ByteBudget(std::uint64_t limit) : limit_(limit) {}

  class Share {
   public:
    explicit Share(ByteBudget& budget) : budget_(&budget) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { budget_->used_ -= bytes_; }
    // False, and nothing is taken, when that would be more than the limit.
    [[nodiscard]] bool grow(std::uint64_t bytes) {
      if (budget_->used_.fetch_add(bytes) + bytes > budget_->limit_) {
        budget_->used_ -= bytes;
        return false;
      }
      bytes_ += bytes;
      return true;
    }

   private:
    ByteBudget* budget_;
    std::uint64_t bytes_ = 0;
  };

 private:
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_ = 0;
};

}  // namespace atelier
