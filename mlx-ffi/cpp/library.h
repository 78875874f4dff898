// Functions of libraries that MLX has loaded, by name: what is not there is no error of the linker's.
#ifndef LUCID_MLX_LIBRARY_H
#define LUCID_MLX_LIBRARY_H

#ifdef __linux__
#include <dlfcn.h>

#include <initializer_list>
#include <type_traits>

namespace lucid {

class Library {
 public:
  // The first of these that is loaded.
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      library_ = library_ ? library_ : dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    }
  }

  // Was it loaded, with every function that was asked for?
  explicit operator bool() const {
    return library_ && whole_;
  }

  template <typename F>
  void get(F& function, const char* name) {
    function = library_ ? reinterpret_cast<F>(dlsym(library_, name)) : nullptr;
    whole_ = whole_ && function;
  }

 private:
  void* library_ = nullptr;
  bool whole_ = true;
};

} // namespace lucid
#endif

#endif
